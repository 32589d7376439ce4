-- Why do candidates fail, and what share of all trials is each reason?
select
    failures.status,
    failures.error,
    failures.count,
    round(100.0 * failures.count / (select count(*) from trial), 1) as percent_of_trials,
    failures.task_count,
    task.label as example_label,
    failures.example_config
from failures
join run on run.key = failures.example_run_key
join task on task.key = run.task_key
order by failures.count desc;

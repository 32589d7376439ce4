-- How reliable are measurements: what is their spread, and how did they change when they were confirmed?
-- If confirmed_over_first is above 1, trials were measured as faster than their confirmations.
select
    task.label,
    run.preset,
    count(*) as confirmed,
    round(100 * avg(trial.cv), 2) as percent_cv_of_trial,
    round(100 * avg(confirmation.cv), 2) as percent_cv_of_confirmation,
    round(avg(confirmation.latency_s / trial.latency_s), 3) as confirmed_over_first
from confirmation
join trial on trial.run_key = confirmation.run_key and trial.config = confirmation.config
join run on run.key = confirmation.run_key
join task on task.key = run.task_key
where confirmation.status = 'ok' and trial.status = 'ok'
group by run.key
order by percent_cv_of_confirmation desc;

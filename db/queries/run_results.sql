-- How good is the best config of each run, and after how many trials?
-- Set :task (a task's label, or the beginning of its key) to see only one.
select
    task.label,
    best.preset,
    best.seed,
    best.trials,
    round(best.latency_s * 1e6, 1) as latency_us,
    round(best.gflops, 1) as gflops,
    best.confirmed,
    best.run_key
from task
cross join best_of_run as best on best.task_key = task.key
where :task is null or task.label = :task or task.key like :task || '%'
order by task.label, best.gflops desc;

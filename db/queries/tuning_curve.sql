-- When did each run find a better config, and how much better is it?
-- Set :preset, or :task (a task's label, or the beginning of its key), to see only some runs.
with so_far as (
    select
        task.label,
        run.preset,
        run.seed,
        run.key as run_key,
        trial.number,
        trial.elapsed_s,
        trial.latency_s,
        trial.gflops,
        min(trial.latency_s) over (partition by run.key order by trial.number) as best_latency_s
    from task
    cross join run on run.task_key = task.key
    cross join trial on trial.run_key = run.key
    where (:task is null or task.label = :task or task.key like :task || '%')
        and run.preset = coalesce(:preset, run.preset)
)
select
    label,
    preset,
    seed,
    number,
    round(elapsed_s, 2) as elapsed_s,
    round(latency_s * 1e6, 1) as latency_us,
    round(gflops, 1) as gflops,
    run_key
from so_far
where latency_s = best_latency_s
order by label, preset, seed, number;

-- When did each run find something better, and how much better?
-- Set :preset or :task (the beginning of a task's key) to see only some runs.
select
    label,
    preset,
    seed,
    number,
    round(elapsed_s, 2) as elapsed_s,
    round(latency_s * 1e6, 1) as latency_us,
    round(gflops, 1) as gflops
from tuning_curve
where latency_s = best_latency_s
    and preset = coalesce(:preset, preset)
    and task_key like coalesce(:task, '') || '%'
order by label, preset, seed, number;

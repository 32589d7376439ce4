-- How do the presets compare, on each task that several of them tuned?
-- relative_to_best is 1.0 for the fastest preset on the task.
select
    label,
    preset,
    runs,
    trials,
    round(elapsed_s, 1) as elapsed_s,
    round(best_gflops, 1) as best_gflops,
    round(best_gflops / max(best_gflops) over (partition by task_key), 3) as relative_to_best
from tuner_summary
where task_key in (select task_key from tuner_summary group by task_key having count(*) > 1)
order by label, task_key, tuner_summary.best_gflops desc;

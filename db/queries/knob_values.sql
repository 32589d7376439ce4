-- Which values of each knob do the fast configs of a task have?
-- A config is fast if it is within 10 % of the run's best. Set :task (the beginning of a task's key) to see only one.
select
    task.label,
    knob.key as knob,
    knob.value as value,
    count(*) as fast_trials,
    round(max(curve.gflops), 1) as best_gflops
from tuning_curve as curve
join trial on trial.run_key = curve.run_key and trial.number = curve.number
join task on task.key = curve.task_key
join best_of_run as best on best.run_key = curve.run_key
join json_each(trial.config) as knob
where curve.gflops >= 0.9 * best.gflops and curve.task_key like coalesce(:task, '') || '%'
group by curve.task_key, knob.key, knob.value
order by task.label, knob.key, fast_trials desc;

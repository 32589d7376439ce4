-- Which values of each knob occur in a task's fast configs?
-- A config is fast if it is within 10 % of the run's best. Set :task (a task's label, or the beginning of its
-- key) to see only one.
select
    best.label,
    knob.key as knob,
    knob.value as value,
    count(*) as fast_trials,
    round(max(trial.gflops), 1) as best_gflops
from best_of_run as best
join trial on trial.run_key = best.run_key and trial.gflops >= 0.9 * best.gflops
join json_each(trial.config) as knob
where :task is null or best.label = :task or best.task_key like :task || '%'
group by best.task_key, knob.key, knob.value
order by best.label, knob.key, fast_trials desc;

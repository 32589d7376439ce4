-- How close is each task to the peak of its target?
-- Set :peak_gflops to the peak that `anole doctor` measured; the default is the speed of the target's fastest task.
select
    task.label,
    round(best.gflops, 1) as gflops,
    round(
        100.0 * best.gflops / coalesce(:peak_gflops, max(best.gflops) over (partition by task.target)), 1
    ) as percent_of_peak,
    best.preset,
    best.trials
from best_trial as best
join task on task.key = best.task_key
order by task.target, percent_of_peak;

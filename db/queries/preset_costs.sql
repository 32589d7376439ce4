-- How much time has each preset spent, and on how many trials?
-- Units: hours of tuning; s of building (wall clock of each build; builds run in parallel) and of loading, checking and
-- timing.
-- n: sum trials, sum runs
-- Measured: summed over all trials; the hours are the runs' tuning time, without interruptions.
-- Table: preset, tasks, seeds, runs, trials, percent_failed, hours, build_s, run_s
-- Without rows: no trials are recorded yet.
with spent as (
    select
        run_key,
        count(*) as trials,
        sum(status <> 'ok') as failures,
        max(elapsed_s) as elapsed_s,
        sum(build_s) as build_s,
        sum(run_s) as run_s
    from trial
    group by run_key
)
select
    run.preset,
    count(distinct run.task_key) as tasks,
    count(distinct run.seed) as seeds,
    count(*) as runs,
    sum(spent.trials) as trials,
    round(100.0 * sum(spent.failures) / sum(spent.trials), 1) as percent_failed,
    round(sum(spent.elapsed_s) / 3600, 3) as hours,
    round(sum(spent.build_s), 1) as build_s,
    round(sum(spent.run_s), 1) as run_s
from spent
join run on run.key = spent.run_key
group by run.preset
order by sum(spent.elapsed_s) desc, run.preset;

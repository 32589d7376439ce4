-- How good is the best config of each preset after a number of trials?
-- Units: the task's lowest latency of all runs divided by the lowest so far, mean over tasks; 1 is best; trials of a
-- task.
-- n: count preset, max seeds, max tasks
-- Measured: all recorded trials; 0 before a run's first success, and a finished run keeps its best. The line is the
-- mean over seeds, the band the range from the worst to the best seed. Presets are comparable only if they tuned the
-- same tasks.
-- Without rows: `snakemake --cores all` tunes the tasks of models.yaml and records every trial.
with recursive
ends as (
    select run.preset, max(trial.number) + 1 as trials
    from trial
    join run on run.key = trial.run_key
    group by run.preset
),
grid as (
    select 1 as trials, 0 as before
    union all
    select min(grid.trials + max(1, grid.trials / 4), (select max(trials) from ends)), grid.trials
    from grid
    where grid.trials < (select max(trials) from ends)
),
best as (select task_key, min(latency_s) as latency_s from trial where status = 'ok' group by task_key),
so_far as (
    select
        run.task_key,
        run.preset,
        run.seed,
        grid.trials,
        -- Failures have no latency.
        best.latency_s / (
            select min(trial.latency_s)
            from trial
            where trial.run_key = run.key and trial.number < grid.trials
        ) as speed
    from run
    join best on best.task_key = run.task_key
    join ends on ends.preset = run.preset
    join grid on grid.before < ends.trials
    where exists (select 1 from trial where trial.run_key = run.key)
),
of_seed as (
    select preset, seed, trials, count(distinct task_key) as tasks, avg(coalesce(speed, 0)) as speed
    from so_far
    group by preset, seed, trials
)
select
    preset,
    trials,
    round(avg(speed), 4) as speed,
    round(min(speed), 4) as lowest_seed,
    round(max(speed), 4) as highest_seed,
    count(*) as seeds,
    max(tasks) as tasks
from of_seed
group by preset, trials
order by preset, trials;

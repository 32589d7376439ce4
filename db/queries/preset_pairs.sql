-- Which of two presets is better on the tasks and seeds that both tuned?
-- Each row is a task and a seed; `anole report` computes ratios and intervals from them.
-- Units: speed of the first preset's best config divided by the speed of the second's; above 1, the first is better.
-- Measured: the best latency of the first trials, as many as the shorter run has.
-- Without rows: no task was tuned by two presets; list builds of a model with several presets in models.yaml.
with tuned as (
    select run.key, run.task_key, run.preset, run.seed, count(*) as trials
    from run
    join trial on trial.run_key = run.key
    group by run.key
)
select
    one.preset as one,
    other.preset as other,
    task.label,
    one.task_key,
    one.seed,
    min(one.trials, other.trials) as trials,
    (
        select min(latency_s)
        from trial
        where run_key = one.key and number < min(one.trials, other.trials) and status = 'ok'
    ) as one_latency_s,
    (
        select min(latency_s)
        from trial
        where run_key = other.key and number < min(one.trials, other.trials) and status = 'ok'
    ) as other_latency_s
from tuned as one
join tuned as other on other.task_key = one.task_key and other.seed = one.seed and other.preset > one.preset
join task on task.key = one.task_key
order by one.preset, other.preset, one.task_key, one.seed;

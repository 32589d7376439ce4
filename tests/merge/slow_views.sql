-- Reference versions of the views without the prefix "slow_", as in Anole 0.4: they rank all rows first, and apply
-- conditions afterwards.

create view slow_best_of_run as
-- The best config of each run, by its last confirmations or, if it has none yet, by its trials.
with last_confirmation as (
    select *, row_number() over (partition by run_key, config order by number desc) as age
    from confirmation as c
    where after_trials = (select max(after_trials) from confirmation where run_key = c.run_key)
),
measured as (
    select run_key, config, latency_s, latency_std_s, 1 as confirmed, rank, number
    from last_confirmation
    where age = 1 and status = 'ok'
    union all
    select run_key, config, latency_s, latency_std_s, 0, null, null
    from trial as t
    where status = 'ok' and not exists (
        select 1 from confirmation as c where c.run_key = t.run_key and c.config = t.config and c.status <> 'ok'
    )
),
ranked as (
    select *, row_number() over (partition by run_key order by confirmed desc, rank, number desc, latency_s, config) as place
    from measured
)
select
    run.key as run_key,
    run.task_key,
    task.label,
    run.preset,
    run.seed,
    (select count(*) from trial where trial.run_key = run.key) as trials,
    ranked.config,
    ranked.latency_s,
    ranked.latency_std_s,
    task.flop / ranked.latency_s / 1e9 as gflops,
    ranked.confirmed
from ranked
join run on run.key = ranked.run_key
join task on task.key = run.task_key
where ranked.place = 1;

create view slow_best_trial as
-- The best config of each task over all runs; confirmed configs rank before unconfirmed ones.
with ranked as (
    select *, row_number() over (partition by task_key order by confirmed desc, latency_s, run_key) as place
    from slow_best_of_run
)
select task_key, label, config, latency_s, latency_std_s, gflops, confirmed, run_key, preset, seed, trials
from ranked
where place = 1;

create view slow_tuning_curve as
-- The progress of each run: every trial, and the best result up to it.
select
    trial.run_key,
    trial.task_key,
    task.label,
    run.preset,
    run.seed,
    trial.number,
    trial.iteration,
    trial.elapsed_s,
    trial.latency_s,
    trial.gflops,
    min(trial.latency_s) over so_far as best_latency_s,
    max(trial.gflops) over so_far as best_gflops
from trial
join run on run.key = trial.run_key
join task on task.key = trial.task_key
window so_far as (partition by trial.run_key order by trial.number);

create view slow_tuner_summary as
-- The cost of each preset on each task, and its best result.
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
    run.task_key,
    task.label,
    run.preset,
    count(*) as runs,
    sum(spent.trials) as trials,
    sum(spent.failures) as failures,
    sum(spent.elapsed_s) as elapsed_s,
    sum(spent.build_s) as build_s,
    sum(spent.run_s) as run_s,
    min(best.latency_s) as best_latency_s,
    max(best.gflops) as best_gflops
from run
join task on task.key = run.task_key
join spent on spent.run_key = run.key
left join slow_best_of_run as best on best.run_key = run.key
group by run.task_key, run.preset;

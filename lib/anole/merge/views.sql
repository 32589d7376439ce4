-- Views that answer common questions. Every merge recreates them.

create view best_of_run as
-- The best config of each run, by its last confirmations or, if it has none yet, by its trials. A condition on the run
-- or on the task limits the rows that are read.
select
    run.key as run_key,
    run.task_key,
    task.label,
    run.preset,
    run.seed,
    (select count(*) from trial where trial.run_key = run.key) as trials,
    coalesce(confirmed.config, tried.config) as config,
    coalesce(confirmed.latency_s, tried.latency_s) as latency_s,
    iif(confirmed.run_key is null, tried.latency_std_s, confirmed.latency_std_s) as latency_std_s,
    task.flop / coalesce(confirmed.latency_s, tried.latency_s) / 1e9 as gflops,
    confirmed.run_key is not null as confirmed
from run
join task on task.key = run.task_key
left join confirmation as confirmed on confirmed.run_key = run.key and confirmed.number = (
    -- SQLite takes bare columns in a query with max() from the row of the maximum: a config's last confirmation.
    select number
    from (
        select max(number) as number, rank, status
        from confirmation
        where run_key = run.key and after_trials = (select max(after_trials) from confirmation where run_key = run.key)
        group by config
    )
    where status = 'ok'
    order by rank, number desc
    limit 1
)
left join trial as tried on tried.run_key = run.key and tried.number = case when confirmed.run_key is null then (
    select number
    from trial as t
    where t.run_key = run.key and t.status = 'ok' and not exists (
        select 1 from confirmation as c where c.run_key = t.run_key and c.config = t.config and c.status <> 'ok'
    )
    order by latency_s, config
    limit 1
) end
where confirmed.run_key is not null or tried.run_key is not null;

create view best_trial as
-- The best config of each task over all runs; confirmed configs rank before unconfirmed ones. SQLite applies conditions
-- on partition columns before ranking, so the label is listed there, too, although the key determines it.
with ranked as (
    select *, row_number() over (partition by task_key, label order by confirmed desc, latency_s, run_key) as place
    from best_of_run
)
select task_key, label, config, latency_s, latency_std_s, gflops, confirmed, run_key, preset, seed, trials
from ranked
where place = 1;

create view tuning_curve as
-- The progress of each run: every trial, and the best result up to it. Cross joins fix the order of the joins. Trials
-- are therefore read in the order of runs and numbers and need no sorting.
select
    run.key as run_key,
    run.task_key,
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
from run
cross join task on task.key = run.task_key
cross join trial on trial.run_key = run.key
window so_far as (partition by run.key, run.task_key, task.label, run.preset, run.seed order by trial.number);

create view tuner_summary as
-- The cost of each preset on each task, and its best result. A window adds up the runs, because a condition on its
-- partition columns limits the trials that are read; with "group by", that only works for one level of grouping.
with spent as (
    select
        run.key as run_key,
        run.task_key,
        task.label,
        run.preset,
        task.flop,
        count(*) as trials,
        sum(trial.status <> 'ok') as failures,
        max(trial.elapsed_s) as elapsed_s,
        sum(trial.build_s) as build_s,
        sum(trial.run_s) as run_s
    from run
    cross join task on task.key = run.task_key
    cross join trial on trial.run_key = run.key
    group by run.key, run.task_key, task.label, run.preset
),
added as (
    select
        task_key,
        label,
        preset,
        flop,
        count(*) over same_preset as runs,
        sum(trials) over same_preset as trials,
        sum(failures) over same_preset as failures,
        sum(elapsed_s) over same_preset as elapsed_s,
        sum(build_s) over same_preset as build_s,
        sum(run_s) over same_preset as run_s,
        min((select latency_s from best_of_run where best_of_run.run_key = spent.run_key))
            over same_preset as best_latency_s,
        row_number() over same_preset as place
    from spent
    window same_preset as (partition by task_key, label, preset)
)
select
    task_key,
    label,
    preset,
    runs,
    trials,
    failures,
    elapsed_s,
    build_s,
    run_s,
    best_latency_s,
    flop / best_latency_s / 1e9 as best_gflops
from added
where place = 1;

create view model_latency as
-- One row per build and reference, measured in the same process run. Evaluations of an earlier build with the same
-- name are left out.
select
    build.model,
    build.target,
    build.preset,
    evaluation.latency_s,
    evaluation.reference,
    evaluation.reference_latency_s,
    evaluation.speedup,
    evaluation.relative_error,
    build.name as build,
    evaluation.output_variation,
    evaluation.precision,
    evaluation.reference_precision,
    evaluation.exact_error
from evaluation
join build on build.name = evaluation.build
where evaluation.created_at >= build.created_at;

create view model_load_latency as
-- One row per build, number of background processes and reference, with interleaved timing under that load.
-- Evaluations of an earlier build with the same name are left out.
select
    build.model,
    build.target,
    build.preset,
    build_load.neighbours,
    build_load.p50_s,
    build_load.p95_s,
    build_load.p99_s,
    build_load.runs,
    reference.engine as reference,
    reference.p50_s as reference_p50_s,
    reference.p95_s as reference_p95_s,
    reference.p99_s as reference_p99_s,
    reference.runs as reference_runs,
    reference.p50_s / build_load.p50_s as p50_speedup,
    reference.p95_s / build_load.p95_s as p95_speedup,
    reference.p99_s / build_load.p99_s as p99_speedup,
    build.name as build
from load_latency as build_load
join load_latency as reference on reference.build = build_load.build and reference.neighbours = build_load.neighbours
join build on build.name = build_load.build
where build_load.engine = 'build' and reference.engine <> 'build' and build_load.created_at >= build.created_at;

create view task_usage as
-- The models that use each task, and how often it occurs in all of them together.
select
    task.key as task_key,
    task.label,
    task.flop,
    used.target,
    count(*) as model_count,
    group_concat(used.model, ', ') as models,
    sum(used.weight) as weight
from (select model, target, task_key, weight from model_task order by model) as used
join task on task.key = used.task_key
group by task.key, used.target;

create view failures as
-- Why candidates failed: the first line of the error, its count, and the first example. SQLite takes bare columns in a
-- query with min() from the row of the minimum.
select
    status,
    substr(error, 1, instr(error || char(10), char(10)) - 1) as error,
    count(*) as count,
    count(distinct task_key) as task_count,
    min(created_at) as first_at,
    run_key as example_run_key,
    number as example_number,
    config as example_config
from trial
where status <> 'ok'
group by status, substr(error, 1, instr(error || char(10), char(10)) - 1);

create view rejections as
-- The share of each task's space that each constraint is the first to reject.
select
    space.task_key,
    task.label,
    task.target ->> '$.kind' as target_kind,
    space.size,
    rejected.key as reason,
    1.0 * rejected.value / space.sampled as share
from space
join task on task.key = space.task_key,
json_each(space.rejections) as rejected;

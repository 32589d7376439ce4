-- Which trials were measured on another processor than the one that their target names?
-- Older versions did not refuse them. Where a device of another machine measured (`measured_at`), its processor is not
-- recorded. Measure these tasks again where the target is, or describe the target that was measured.
select
    task.label,
    task.target ->> '$.model' as target_processor,
    run.host ->> '$.processor' as host_processor,
    run.host ->> '$.name' as host_name,
    run.preset,
    (select count(*) from trial where trial.run_key = run.key) as trials,
    run.started_at,
    run.key as run_key,
    run.task_key
from run
join task on task.key = run.task_key
where task.target ->> '$.kind' = 'cpu'
    and run.host ->> '$.measured_at' is null
    and run.host ->> '$.processor' <> task.target ->> '$.model'
order by run.started_at, task.label;

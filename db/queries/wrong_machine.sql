-- Which trials were measured on a different processor than their target's?
-- Older versions did not reject them. The processor of a remote device (`measured_at`) is not recorded. Measure these
-- tasks again on the target, or change the target to the processor that was measured.
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

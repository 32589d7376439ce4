-- In which layers does a build spend its time?
-- Layers that occur several times are counted each time. Set :build to see only one build.
select
    build_task.build,
    task.label,
    build_task.weight,
    round(build_task.latency_s * 1e6, 1) as latency_us,
    round(build_task.weight * build_task.latency_s * 1e6, 1) as total_us,
    round(
        100.0 * build_task.weight * build_task.latency_s
        / sum(build_task.weight * build_task.latency_s) over (partition by build_task.build),
        1
    ) as percent_of_tuned_time
from build_task
join task on task.key = build_task.task_key
where build_task.latency_s is not null and build_task.build = coalesce(:build, build_task.build)
order by build_task.build, total_us desc;

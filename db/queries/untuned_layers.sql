-- Which layers of a build run with a default config, why, and what share of the operations do they have?
-- Units: percent of the build's floating-point operations.
-- n: count build, sum weight as layer
-- Measured: when the builds were compiled. The weight is the number of occurrences of the task.
-- Table: build, label, weight, percent_of_build_flop, matched, reason
-- Without rows: none: all layers of the compiled builds run with tuned configs.
select
    build_task.build,
    task.label,
    build_task.weight,
    round(100.0 * build_task.weight * task.flop / build.total_flop, 2) as percent_of_build_flop,
    build_task.matched,
    build_task.reason
from build_task
join build on build.name = build_task.build
join task on task.key = build_task.task_key
where build_task.matched <> 'tuned'
order by build_task.build, percent_of_build_flop desc;

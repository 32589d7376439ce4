-- For which layers does the best config in isolation differ from the best one within the network?
-- Each row compares these two configs. If both ratios are above 1, the second config is slower in isolation, but faster
-- in the network. Not every such config is chosen: all of them together must not slow the network down.
with ranked as (
    select *, row_number() over (partition by build, task_key order by latency_s, number) as place
    from refinement
    where latency_s is not null
)
select
    alone.build,
    task.label,
    round(within.latency_alone_s / alone.latency_alone_s, 3) as slower_alone,
    round(alone.latency_s / within.latency_s, 3) as faster_in_network,
    within.chosen,
    alone.config as best_alone,
    within.config as best_in_network
from refinement as alone
join ranked as within using (build, task_key)
join task on task.key = alone.task_key
where alone.number = 0 and within.place = 1 and within.number <> 0
order by faster_in_network desc;

-- What share of a target's search spaces is invalid, and why?
select
    target_kind,
    reason,
    round(100.0 * sum(share) / (select count(*) from space), 1) as percent_of_all_spaces,
    round(100.0 * max(share), 1) as percent_of_one_at_most,
    count(*) as tasks
from rejections
where :target_kind is null or target_kind = :target_kind
group by target_kind, reason
order by sum(share) desc;

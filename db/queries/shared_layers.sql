-- Which layers do two models share, which are therefore tuned only once?
-- Set :model to see only the layers of one model.
select
    one.model,
    other.model as other_model,
    task.label,
    one.target,
    one.weight,
    other.weight as other_weight,
    round(100.0 * one.weight * task.flop / total.flop, 1) as percent_of_model_flop
from model_task as one
join model_task as other
    on other.task_key = one.task_key and other.target = one.target and other.model <> one.model
join task on task.key = one.task_key
join (
    select model_task.model, model_task.target, sum(model_task.weight * task.flop) as flop
    from model_task
    join task on task.key = model_task.task_key
    group by model_task.model, model_task.target
) as total on total.model = one.model and total.target = one.target
where one.model = coalesce(:model, one.model)
order by one.model, other.model, percent_of_model_flop desc;

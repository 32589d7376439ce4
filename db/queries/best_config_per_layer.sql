-- What is the best config of each layer of a model, and how fast is it?
-- Set :model and :target to see only one of each.
select
    model_task.model,
    model_task.target,
    task.label,
    model_task.weight,
    round(best.latency_s * 1e6, 1) as latency_us,
    round(best.gflops, 1) as gflops,
    best.preset,
    best.confirmed,
    best.config
from model_task
join task on task.key = model_task.task_key
left join best_trial as best on best.task_key = model_task.task_key
where model_task.model = coalesce(:model, model_task.model)
    and model_task.target = coalesce(:target, model_task.target)
order by model_task.model, model_task.target, model_task.position;

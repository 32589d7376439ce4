-- Which tasks occur most often in the models?
select label, target, weight, model_count, models, flop, task_key
from task_usage
order by weight desc, label;

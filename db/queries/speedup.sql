-- How fast is each build beside its references, how exact is it, and how much of it was tuned?
select
    model_latency.model,
    model_latency.target,
    model_latency.preset,
    round(model_latency.latency_s * 1e3, 3) as latency_ms,
    model_latency.reference,
    round(model_latency.reference_latency_s * 1e3, 3) as reference_latency_ms,
    round(model_latency.speedup, 3) as speedup,
    model_latency.relative_error,
    round(100.0 * build.coverage_flop_share, 1) as percent_tuned,
    build.trials,
    build.name as build
from model_latency
join build on build.name = model_latency.build
order by model_latency.model, model_latency.target, model_latency.reference;

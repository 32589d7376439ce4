-- How fast is each build beside busy processes, and what does a reference take beside as many?
select
    model,
    target,
    preset,
    neighbours,
    round(p50_s * 1e3, 2) as p50_ms,
    round(p95_s * 1e3, 2) as p95_ms,
    round(p99_s * 1e3, 2) as p99_ms,
    reference,
    round(reference_p50_s * 1e3, 2) as reference_p50_ms,
    round(reference_p95_s * 1e3, 2) as reference_p95_ms,
    round(reference_p99_s * 1e3, 2) as reference_p99_ms,
    round(p50_speedup, 2) as p50_speedup,
    round(p95_speedup, 2) as p95_speedup,
    runs,
    build
from model_load_latency
where model = coalesce(:model, model)
order by model, target, preset, reference, neighbours;

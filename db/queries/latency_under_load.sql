-- How fast is each build under load from other processes, compared with a reference?
-- Units: ms of one run, lower is better; a speedup is the reference's percentile divided by the build's.
-- n: sum runs, count build
-- Measured: build and references ran in turns, each in its own process with nothing pinned to a core, while other
-- processes of the same priority kept cores busy. With fewer than 100 runs, p99 is the slowest. The chart shows p50,
-- and a line to p99, of at most 40 builds.
-- Table: build, neighbours, p50_ms, p95_ms, p99_ms, runs, reference, reference_p50_ms, reference_p95_ms,
-- reference_p99_ms, p50_speedup, p95_speedup
-- Without rows: run `anole evaluate builds/BUILD --neighbours 0,1,2` and then `anole merge`.
-- In short: With {neighbours} busy processes, the p50 speedup of {build} over {reference} is {p50_speedup}x.
select
    model,
    target,
    preset,
    neighbours,
    round(p50_s * 1e3, 4) as p50_ms,
    round(p95_s * 1e3, 4) as p95_ms,
    round(p99_s * 1e3, 4) as p99_ms,
    reference,
    round(reference_p50_s * 1e3, 4) as reference_p50_ms,
    round(reference_p95_s * 1e3, 4) as reference_p95_ms,
    round(reference_p99_s * 1e3, 4) as reference_p99_ms,
    round(p50_speedup, 2) as p50_speedup,
    round(p95_speedup, 2) as p95_speedup,
    runs,
    build
from model_load_latency
where model = coalesce(:model, model)
order by neighbours desc, model_load_latency.p50_speedup, build, reference;

-- How fast is each build beside busy processes, and what does a reference take beside as many?
-- Units: ms of one run, lower is better; a speedup is the reference's percentile divided by the build's.
-- n: sum runs, count build
-- Measured: build and references took turns, each in a process of its own with nothing pinned to a core, while so many
-- processes of the same priority kept cores busy. Of fewer than 100 runs, p99 is the slowest. The picture has p50, and
-- a line to p99, of 40 at most.
-- Table: build, neighbours, p50_ms, p95_ms, p99_ms, runs, reference, reference_p50_ms, reference_p95_ms,
-- reference_p99_ms, p50_speedup, p95_speedup
-- Without rows: `anole evaluate builds/BUILD --neighbours 0,1,2` and then `anole merge` fill this.
-- In short: Beside {neighbours} busy processes, {build} is {p50_speedup}x as fast as {reference}, by p50.
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

-- How fast is a build for ranges at each of its sizes, compared with a reference?
-- Units: ms of one run, lower is better; a speedup is the reference's latency divided by the build's.
-- n: count build
-- Measured: build and reference ran in turns at each of these sizes.
-- Table: build, sizes, latency_ms, reference, reference_ms, speedup, relative_error
-- Without rows: only evaluations of builds for [ranges of sizes](../../docs/models.md#ranges-of-sizes) have this.
-- In short: At {sizes}, {build} is {speedup}x as fast as {reference}.
select
    build.name as build,
    build.target,
    (
        select group_concat(key || ' ' || value, ', ') from json_each(own.sizes)
    ) as sizes,
    round(own.latency_s * 1e3, 4) as latency_ms,
    own.reference,
    round(own.reference_latency_s * 1e3, 4) as reference_ms,
    round(own.speedup, 2) as speedup,
    own.relative_error
from size_latency as own
join build on build.name = own.build
where own.created_at >= build.created_at and build.model = coalesce(:model, build.model)
order by build.name, own.reference, own.latency_s;

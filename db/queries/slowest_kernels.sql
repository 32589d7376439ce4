-- Which kernels take the largest share of a network's time, and how far are they from the roofline?
-- Set :model to see only one network.
-- Units: ms of all calls of a kernel in one run, lower is better; percent of one run; GFLOP/s and percent of the
-- roofline, higher is better (above 100 if the data comes from a cache).
-- n: rows as kernel, count build
-- Measured: each kernel within the entire network, in instrumented runs that alternate with plain ones; the median of
-- the fastest tenth. Shares may add up to slightly more or less than 100 %. The chart shows at most 40 builds.
-- Table: build, layers, task, calls, latency_ms, percent_of_network, gflops, percent_of_roofline
-- Without rows: evaluating a build for the CPU times its kernels, except in older versions; run
-- `snakemake --cores all --forcerun evaluate`. `anole profile builds/BUILD` shows one build.
-- In short: The largest share of a network's time in one kernel is {percent_of_network} %: {layers} of {build}.
with layer as (
    -- A layer that a model calls with two input shapes is two tasks, which usually differ in their operations.
    select model_task.model, model_task.target, each.value as name, task.flop, min(task.label) as label
    from model_task
    join json_each(model_task.layers) as each
    join task on task.key = model_task.task_key
    group by model_task.model, model_task.target, each.value, task.flop
)
select
    kernel_latency.build,
    coalesce(
        (select group_concat(value, ', ') from json_each(kernel_latency.layers) where key < 3)
        || iif(
            json_array_length(kernel_latency.layers) > 3,
            ' and ' || (json_array_length(kernel_latency.layers) - 3) || ' more',
            ''
        ),
        replace(kernel_latency.kernel, 'fused_', '')
    ) as layers,
    layer.label as task,
    kernel_latency.kernel,
    kernel_latency.calls,
    round(kernel_latency.latency_s * 1e3, 3) as latency_ms,
    round(100.0 * kernel_latency.latency_s / kernel_profile.whole_s, 1) as percent_of_network,
    round(nullif(kernel_latency.calls * kernel_latency.flop, 0) / kernel_latency.latency_s / 1e9, 1) as gflops,
    round(
        100.0 * kernel_latency.calls * max(
            kernel_latency.flop / coalesce(kernel_latency.peak_flop_per_s, kernel_profile.peak_flop_per_s),
            kernel_latency.size_bytes / kernel_profile.peak_bytes_per_s
        ) / kernel_latency.latency_s,
        1
    ) as percent_of_roofline
from kernel_latency
join kernel_profile on kernel_profile.build = kernel_latency.build
join build on build.name = kernel_latency.build
left join layer
    on layer.model = build.model
    and layer.target = build.target
    and layer.name = kernel_latency.layers ->> 0
    and layer.flop = kernel_latency.flop
where build.model = coalesce(:model, build.model)
    and kernel_profile.created_at >= build.created_at
order by kernel_latency.latency_s / kernel_profile.whole_s desc, kernel_latency.build, kernel_latency.number;

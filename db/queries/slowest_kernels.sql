-- Which kernels take the largest share of a network's time, and how far are they from the roofline?
-- Set :model to see only one network.
select
    kernel_latency.build,
    kernel_latency.kernel,
    kernel_latency.calls,
    round(kernel_latency.latency_s * 1e3, 3) as latency_ms,
    round(100.0 * kernel_latency.latency_s / kernel_profile.whole_s, 1) as percent_of_network,
    round(kernel_latency.calls * kernel_latency.flop / kernel_latency.latency_s / 1e9, 1) as gflops,
    round(
        100.0 * kernel_latency.calls * max(
            kernel_latency.flop / kernel_profile.peak_flop_per_s,
            kernel_latency.size_bytes / kernel_profile.peak_bytes_per_s
        ) / kernel_latency.latency_s,
        1
    ) as percent_of_roofline
from kernel_latency
join kernel_profile on kernel_profile.build = kernel_latency.build
join build on build.name = kernel_latency.build
where build.model = coalesce(:model, build.model)
    and kernel_profile.created_at >= build.created_at
order by percent_of_network desc;

-- Which kernels are limited by memory, which by arithmetic, and how far is each from its limit?
-- Kernels with at least 1 % of a network's time, up to 400.
-- Units: GFLOP/s, higher is better, over floating-point operations per byte of a kernel's inputs and outputs.
-- n: rows as kernel, count build
-- Measured: each kernel within the entire network, as in slowest_kernels. The roofline (dashed) is the highest measured
-- with any build: multiply-adds from registers, in the fastest type, and copying memory.
-- Without rows: no kernel with arithmetic takes at least 1 % of a network's time and 20 µs.
with peak as (
    select
        max(coalesce(kernel_latency.peak_flop_per_s, kernel_profile.peak_flop_per_s)) as flop_per_s,
        max(kernel_profile.peak_bytes_per_s) as bytes_per_s
    from kernel_profile
    join kernel_latency on kernel_latency.build = kernel_profile.build
)
select
    kernel_latency.build,
    coalesce(
        (select group_concat(value, ', ') from json_each(kernel_latency.layers) where key < 3),
        replace(kernel_latency.kernel, 'fused_', '')
    ) as layers,
    kernel_latency.kernel,
    round(100.0 * kernel_latency.latency_s / kernel_profile.whole_s, 1) as percent_of_network,
    round(1.0 * kernel_latency.flop / kernel_latency.size_bytes, 4) as flop_per_byte,
    round(kernel_latency.flop * kernel_latency.calls / kernel_latency.latency_s / 1e9, 3) as gflops,
    peak.flop_per_s / 1e9 as peak_gflops,
    peak.bytes_per_s / 1e9 as peak_gb_per_s
from kernel_latency
join kernel_profile on kernel_profile.build = kernel_latency.build
join build on build.name = kernel_latency.build
join peak
where kernel_profile.created_at >= build.created_at
    and kernel_profile.peak_flop_per_s is not null
    and kernel_latency.flop > 0
    and kernel_latency.size_bytes > 0
    and kernel_latency.latency_s >= 0.01 * kernel_profile.whole_s
order by kernel_latency.latency_s / kernel_profile.whole_s desc
limit 400;

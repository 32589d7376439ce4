-- How large is each build, how long does it take to start, and how much of it is tuned?
-- Units: MB of all compiled files; ms from the start of a process to the first outputs, including imports; percent of
-- the floating-point operations that run with a tuned config.
-- n: count build
-- Measured: size and share when the build was compiled; the start once, when it was evaluated under load.
-- `anole evaluate builds/BUILD --neighbours 0` measures the start.
-- Table: build, target, preset, trials, percent_tuned, size_mb, start_ms, compiled_utc
-- Without rows: `snakemake --cores all` compiles the builds of models.yaml.
select
    build.name as build,
    build.model,
    build.target,
    build.preset,
    build.trials,
    round(100.0 * build.coverage_flop_share, 1) as percent_tuned,
    round(build.size_bytes / 1e6, 3) as size_mb,
    (
        select round(min(start_s) * 1e3, 1) from load_latency where build = build.name and engine = 'build'
    ) as start_ms,
    replace(substr(build.created_at, 1, 16), 'T', ' ') as compiled_utc
from build
order by build.name;

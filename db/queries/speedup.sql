-- How fast is each build beside its references, how exact is it, and how much of it was tuned?
-- An error says nothing where the outputs hardly depend on the input: where output_variation is below 0.01.
-- Units: ms of one run (median, and standard deviation of all runs), lower is better; a speedup above 1 means that the
-- build is faster; the error is relative to the norm of the reference's outputs, or a signal-to-noise ratio in dB where
-- the build computes with whole numbers.
-- n: count build, count reference
-- Measured: build and reference took turns (rounds) on the same inputs and threads. The speedup is the median of the
-- rounds' ratios, and from speedup_low to speedup_high lies the middle half of them; older evaluations have none. A
-- simulated target counts cycles, and its reference is the same network with default configs. The picture has the 40
-- builds with the least speedup.
-- Table: build, precision, reference, reference_precision, speedup, speedup_low, speedup_high, latency_ms,
-- reference_latency_ms, relative_error, output_variation, snr_db, latency_std_ms, reference_latency_std_ms, rounds,
-- threads, processor
-- Without rows: `snakemake --cores all` compiles the builds of models.yaml and evaluates them, on a machine that has
-- their targets.
-- In short: The least speedup is {speedup}x, of {build} beside {reference}.
select
    build.model,
    build.target,
    build.preset,
    round(evaluation.latency_s * 1e3, 3) as latency_ms,
    round(evaluation.latency_std_s * 1e3, 4) as latency_std_ms,
    evaluation.precision,
    evaluation.reference,
    evaluation.reference_precision,
    round(evaluation.reference_latency_s * 1e3, 3) as reference_latency_ms,
    round(evaluation.reference_latency_std_s * 1e3, 4) as reference_latency_std_ms,
    round(evaluation.speedup, 3) as speedup,
    round(evaluation.speedup_low, 3) as speedup_low,
    round(evaluation.speedup_high, 3) as speedup_high,
    evaluation.relative_error,
    evaluation.output_variation,
    round(evaluation.snr_db, 1) as snr_db,
    round(100.0 * build.coverage_flop_share, 1) as percent_tuned,
    build.trials,
    evaluation.rounds,
    evaluation.threads,
    evaluation.host ->> '$.processor' as processor,
    build.name as build
from evaluation
join build on build.name = evaluation.build
where evaluation.created_at >= build.created_at
order by evaluation.speedup, build.name, evaluation.reference;

-- How fast is each build compared with its references, how accurate is it, and how much of it was tuned?
-- The error is meaningless if the outputs hardly depend on the input: if output_variation is below 0.01.
-- Units: ms of one run (median, and standard deviation of all runs), lower is better; a speedup above 1 means that the
-- build is faster; the error is relative to the norm of the reference's outputs, or a signal-to-noise ratio in dB for
-- integer builds.
-- n: count build, count reference
-- Measured: build and reference ran in turns (rounds) with the same inputs and number of threads. The speedup is the
-- median of the rounds' ratios; the middle half of them is between speedup_low and speedup_high, which older
-- evaluations do not have. For a simulated target, cycles are counted, and the reference is the same network with
-- default configs. The chart shows the 40 builds with the smallest speedup.
-- Table: build, precision, reference, reference_precision, speedup, speedup_low, speedup_high, latency_ms,
-- reference_latency_ms, relative_error, output_variation, snr_db, latency_std_ms, reference_latency_std_ms, rounds,
-- threads, processor
-- Without rows: run `snakemake --cores all` to compile and evaluate the builds of models.yaml, on a machine with their
-- targets.
-- In short: The smallest speedup is {speedup}x, of {build} over {reference}.
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

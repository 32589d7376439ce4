-- How well do surrogates predict which candidates of a batch are fast?
-- Units: Spearman's rank correlation of scores and measured speeds within a batch, from -1 to 1; the iteration's
-- number, from 0.
-- n: sum batches as batch, count tuner
-- Measured: the surrogate scored each batch when it was selected; failures count as the slowest. The line is the median
-- over runs, the band the middle half. A batch contains candidates with similar, high scores, so even a good surrogate
-- ranks it only roughly. The surrogate is in brackets if the run records it.
-- Without rows: none is recorded: older versions did not record it, and searches with one batch or without a surrogate
-- have none.
with known as (
    select run_key, number - 1 as batch, log ->> '$.rank_correlation' as correlation
    from iteration
    where log ->> '$.rank_correlation' is not null
),
width as (select max(batch) / 80 + 1 as iterations from known),
placed as (
    select
        run.preset || coalesce(' (' || (run.settings ->> '$.surrogate.name') || ')', '') as tuner,
        known.batch / width.iterations * width.iterations as iteration,
        known.correlation,
        cume_dist() over same as share
    from known
    join run on run.key = known.run_key
    join width
    window same as (
        partition by run.preset, run.settings ->> '$.surrogate.name', known.batch / width.iterations
        order by known.correlation
    )
)
select
    tuner,
    iteration,
    round(min(correlation) filter (where share >= 0.25), 3) as low_correlation,
    round(min(correlation) filter (where share >= 0.5), 3) as median_correlation,
    round(min(correlation) filter (where share >= 0.75), 3) as high_correlation,
    count(*) as batches
from placed
group by 1, 2
order by 1, 2;

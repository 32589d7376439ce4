-- How large are the samplers' batches?
-- Units: trials in one iteration; the iteration's number, from 0.
-- n: sum batches as batch, count tuner
-- Measured: counted from the trials. The line is the mean over runs, the band the range from minimum to maximum; the
-- budget may cut off a run's last batch. The sampler is in brackets if the run records it.
-- Without rows: no trials are recorded yet.
with batch as (select run_key, iteration, count(*) as size from trial group by run_key, iteration),
width as (select max(iteration) / 80 + 1 as iterations from batch)
select
    run.preset || coalesce(' (' || (run.settings ->> '$.sampler.name') || ')', '') as tuner,
    batch.iteration / width.iterations * width.iterations as iteration,
    round(avg(batch.size), 2) as mean_size,
    min(batch.size) as least_size,
    max(batch.size) as greatest_size,
    count(*) as batches
from batch
join run on run.key = batch.run_key
join width
group by 1, 2
order by 1, 2;

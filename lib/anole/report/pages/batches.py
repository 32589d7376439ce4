"""Section: how large the samplers' batches are."""

from __future__ import annotations

from anole.report.pages.charts import lines
from anole.report.pages.figure import Figure, Lacking, Shown, Source

_SQL = """
with batch as (select run_key, iteration, count(*) as size from trial group by run_key, iteration),
width as (select max(iteration) / 80 + 1 as iterations from batch)
select
    run.preset || coalesce(' (' || (run.settings ->> '$.sampler.name') || ')', '') as tuner,
    batch.iteration / width.iterations * width.iterations as iteration,
    avg(batch.size) as mean_size,
    min(batch.size) as least_size,
    max(batch.size) as greatest_size,
    count(*) as batches
from batch
join run on run.key = batch.run_key
join width
group by 1, 2
order by 1, 2
"""


def make(source: Source) -> list[Shown]:
    """Returns the sizes of the batches by iteration."""
    query = source.database.query(_SQL)
    if not query.rows:
        return [Lacking("Batches", "no trial is recorded yet.")]
    figure = Figure(
        "Batch sizes by iteration",
        "trials in one iteration; the iteration's number, from 0.",
        f"{sum(row[5] for row in query.rows):,} batches.",
        "counted from the trials. The line is the mean over runs, the band from the least to the greatest; the budget "
        "may cut off a run's last batch. The sampler is in brackets where the run names it.",
        (query,),
        chart=lines(
            query.records(),
            *("iteration", "mean_size", "tuner", ("iteration", "trials in a batch")),
            low="least_size",
            high="greatest_size",
        ),
    )
    return [figure]

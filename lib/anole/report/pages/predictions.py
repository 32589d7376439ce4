"""Section: how well surrogates ranked candidates before these were measured."""

from __future__ import annotations

from anole.report.pages.charts import lines
from anole.report.pages.figure import Figure, Lacking, Shown, Source

_SQL = """
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
        correlation,
        cume_dist() over same as share
    from known
    join run on run.key = known.run_key
    join width
    window same as (
        partition by run.preset, run.settings ->> '$.surrogate.name', known.batch / width.iterations
        order by correlation
    )
)
select
    tuner,
    iteration,
    min(correlation) filter (where share >= 0.25) as low_correlation,
    min(correlation) filter (where share >= 0.5) as median_correlation,
    min(correlation) filter (where share >= 0.75) as high_correlation,
    count(*) as batches
from placed
group by 1, 2
order by 1, 2
"""


def make(source: Source) -> list[Shown]:
    """Returns the rank correlations of predicted and measured speeds by iteration."""
    query = source.database.query(_SQL)
    if not query.rows:
        problem = (
            "none is recorded: older versions recorded none, and a search of one batch or without a surrogate has none."
        )
        return [Lacking("Predicted beside measured", problem)]
    figure = Figure(
        "Predicted beside measured",
        "Spearman's rank correlation of scores and measured speeds within a batch, from -1 to 1; the iteration's "
        "number, from 0.",
        f"{sum(row[5] for row in query.rows):,} batches.",
        "the surrogate scored each batch when it was chosen, and failures count as the slowest. The line is the "
        "median over runs, the band the middle half. A batch holds what the surrogate likes, which differs little: "
        "even a good surrogate ranks it only roughly. It is in brackets where the run names it.",
        (query,),
        chart=lines(
            query.records(),
            *("iteration", "median_correlation", "tuner", ("iteration", "rank correlation")),
            low="low_correlation",
            high="high_correlation",
        ),
    )
    return [figure]

"""Run every experiment on the search methods until the time is up; a later call resumes.

    python -m benchmarks.search.run --minutes 60
    python -m benchmarks.search.run --experiments tables --hub HUB
    python -m benchmarks.search.run --experiments networks_tuned --only resnet18 --only anole

Each experiment has a file in ``docs/results/data/search``, to which every run appends its rows when it ends. Rows of
older versions of a tuner are replaced. `claims.py` makes the page from these files. Runs that the papers' claims need
are first.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from anole.host.machine import available_cores
from benchmarks.common.arguments import choose_names, log_progress, make_parser
from benchmarks.search.clusters import CLUSTERED
from benchmarks.search.convergence import CONVERGED
from benchmarks.search.exact import TABLES
from benchmarks.search.experiment import FOLDER, Experiment, run_experiment
from benchmarks.search.layers import CONFIRMED, LIVE
from benchmarks.search.networks import TIMING, TUNING
from benchmarks.vta.networks import ACCELERATOR

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (TABLES, ACCELERATOR, CONVERGED, CLUSTERED, TUNING, TIMING, LIVE, CONFIRMED)
}
"""All experiments in execution order; those that measure time, and need an idle machine, are last."""


def main() -> None:
    """Run the missing jobs."""
    parser = make_parser(__doc__)
    parser.add_argument("--experiments", default="", help="comma-separated; all by default")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after this time")
    parser.add_argument("--processes", type=int, default=available_cores(), help="parallel runs, unless timed")
    parser.add_argument("--only", action="append", default=[], help="run only jobs with this key, such as a network")
    parser.add_argument("--hub", help="folder of the T4 files of others' spaces")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the files")
    given = parser.parse_args()
    if given.hub:
        os.environ["HUB"] = given.hub
    log_progress()
    ends_s = time.monotonic() + 60 * given.minutes
    experiments = [EXPERIMENTS[name] for name in choose_names(given.experiments, EXPERIMENTS)]
    complete = [
        run_experiment(each, given.folder / f"{each.name}{each.suffix}", ends_s, given.processes, given.only)
        for each in experiments
    ]
    logging.info("all runs are complete" if all(complete) else "run again to continue")


if __name__ == "__main__":
    main()

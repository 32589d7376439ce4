"""Compares the search methods on this machine's CPU or GPU: runs every tuner on every layer and confirms the results.

    python -m benchmarks.search.tuners --minutes 120        # continues where it stopped
    python -m benchmarks.search.tuners --seeds 0 --variants autotvm --reference-trials 1000
    python -m benchmarks.search.tuners_report               # into docs/results/data

All tuners run on one layer before the next layer starts, so that they see the machine in a similar state. Latencies
seen in a search are noisy. Afterwards, every config that was a run's fastest at some time from its 16th trial on is
measured again, in turns with the layer's yardstick config; its quality is its latency's ratio to the yardstick's.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from anole.files import document_text, write_atomically
from anole.keys import canonical_json, content_key
from anole.measure.measurer import Measurer
from anole.measure.options import MeasureOptions
from anole.record import Config, Trial
from anole.search.evaluators.fixed import Fixed
from anole.search.settings import TunerSettings
from anole.store.content import ShardContent, read_shard
from anole.tune.options import TuneOptions
from anole.tune.stage import tune_task
from benchmarks.search.variants import BASELINE, VARIANTS, Place, add_place, chosen, chosen_layers, sized_as, tuner_of
from tests.kit.quality import batch_sizes, incumbents

FIRST_TRIAL = 16
RIVALS = 15
"""Number of configs that are confirmed together, without the yardstick."""

logger = logging.getLogger(__name__)


def main() -> None:
    """Runs the missing runs until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="", help="comma-separated; all by default")
    parser.add_argument("--variants", default="", help="comma-separated; all by default")
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated")
    parser.add_argument("--trials", type=int, default=192)
    parser.add_argument("--step", type=int, default=None, help="trials between two looks at the clock; all by default")
    parser.add_argument("--reference-trials", type=int, default=0, help=f"raise {BASELINE} to this many trials")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after this time")
    add_place(parser)
    arguments = parser.parse_args()
    place = Place(arguments.target, arguments.folder)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    ends_s = time.monotonic() + 60 * arguments.minutes
    layers = chosen_layers(arguments.layers)
    variants = chosen(arguments.variants, VARIANTS)
    for module in ("sklearn.ensemble", "torch", "xgboost"):
        # Otherwise the import would count in the time of the first run that needs it.
        import_module(module)
    for seed in map(int, arguments.seeds.split(",")):
        for layer in layers:
            for variant in variants:
                n_trials = max(arguments.trials, arguments.reference_trials if variant == BASELINE else 0)
                if not run(place, layer, variant, seed, n_trials, arguments.step or n_trials, ends_s):
                    logger.info("the time is up; running again continues here: %s, %s, seed %d", layer, variant, seed)
                    confirm(place, layer)
                    return
            confirm(place, layer, ends_s)


def run(place: Place, layer: str, variant: str, seed: int, n_trials: int, step: int, ends_s: float) -> bool:
    """Runs a variant, or what its run still lacks, and returns whether there was time for all of it."""
    settings = settings_of(variant, _sizes_for(place, layer, variant, seed, n_trials))
    receipt = place.folder / f"receipts/{layer}/{variant}/{seed}.json"
    for until in levels(n_trials, step):
        if time.monotonic() > ends_s:
            return False
        logger.info("%s, %s, seed %d: %d trials", layer, variant, seed, until)
        options = TuneOptions(settings, seed, until, _shards_dir(place, settings, seed))
        tune_task(_task_file(place, layer), options, receipt)
    return True


def levels(n_trials: int, step: int) -> list[int]:
    """Returns the budgets up to which a run is tuned, one after another: multiples of `step`, and all trials."""
    return [*range(step, n_trials, step), n_trials]


def settings_of(variant: str, sizes: Sequence[int] = ()) -> TunerSettings:
    """Returns the settings of a variant, without confirmation, which this file does itself; see `tuner_of`."""
    return replace(tuner_of(variant, sizes), n_confirm=0)


def runs_of(place: Place, layer: str) -> Iterator[ShardContent]:
    """Reads all runs of a layer."""
    for path in sorted(place.folder.glob(f"shards/*/{place.task_of(layer).key}/*.jsonl")):
        yield read_shard(path)


def latencies_s(trials: Iterable[Trial]) -> list[float]:
    """Returns the latencies of trials, NaN for a failure."""
    return [trial.measurement.latency_s or np.nan for trial in trials]


def confirm(place: Place, layer: str, ends_s: float = float("inf")) -> None:
    """Measures again all configs that were a run's fastest and are not confirmed yet."""
    runs = [content.trials for content in runs_of(place, layer)]
    confirmed = read_confirmations(place, layer)
    known = {canonical_json(entry["config"]) for entry in confirmed["confirmed"]}
    missing = [config for name, config in _finds(runs).items() if name not in known]
    if not missing:
        return
    yardstick = confirmed["yardstick"] or _fastest(runs)
    with Measurer(place.task_of(layer), MeasureOptions(Fixed())) as measurer:
        for first in range(0, len(missing), RIVALS):
            if time.monotonic() > ends_s:
                return
            logger.info("%s: %d of %d finds confirmed", layer, first, len(missing))
            rivals = missing[first : first + RIVALS]
            base, *measured = measurer.confirm([yardstick, *rivals])
            if base.latency_s is None:
                raise SystemExit(f"{layer}: the yardstick fails: {base.error}")
            confirmed["yardstick"] = dict(yardstick)
            for config, measurement in zip(rivals, measured, strict=True):
                latency_s = measurement.latency_s
                ratio = latency_s / base.latency_s if latency_s else None
                confirmed["confirmed"].append({"config": dict(config), "latency_s": latency_s, "ratio": ratio})
            write_atomically(_confirmations_path(place, layer), document_text(confirmed))


def read_confirmations(place: Place, layer: str) -> dict[str, Any]:
    """Returns a layer's yardstick, and the confirmed configs with their ratios to it."""
    path = _confirmations_path(place, layer)
    return dict(json.loads(path.read_text())) if path.exists() else {"yardstick": None, "confirmed": []}


def _confirmations_path(place: Place, layer: str) -> Path:
    return place.folder / f"confirmations/{place.task_of(layer).key}.json"


def _sizes_for(place: Place, layer: str, variant: str, seed: int, n_trials: int) -> list[int]:
    """Returns the batch sizes for a control, from the run beside which it is; none for other variants.

    Raises:
        SystemExit: that run has not taken all of its trials.
    """
    if (other := sized_as(variant)) is None:
        return []
    folder = _shards_dir(place, settings_of(other), seed) / place.task_of(layer).key
    found = max((read_shard(path).trials for path in folder.glob("*.jsonl")), key=len, default=[])
    if len(found) < n_trials:
        raise SystemExit(f"{variant} on {layer} needs a run of {other} with {n_trials} trials")
    return batch_sizes(found[:n_trials])


def _shards_dir(place: Place, settings: TunerSettings, seed: int) -> Path:
    """Returns the shard folder of one tuner and seed, so that a warm start learns from its own earlier runs only."""
    return place.folder / f"shards/{content_key(settings.to_json())[:16]}-{seed}"


def _task_file(place: Place, layer: str) -> Path:
    task = place.task_of(layer)
    path = place.folder / f"tasks/{task.key}.json"
    write_atomically(path, document_text(task.to_json()))
    return path


def _fastest(runs: Sequence[Sequence[Trial]]) -> Config:
    """Returns the config of the fastest trial of all runs."""
    working = [trial for trials in runs for trial in trials if trial.measurement.latency_s is not None]
    if not working:
        raise SystemExit("no trial worked")
    return min(working, key=lambda trial: trial.measurement.latency_s or np.inf).config


def _finds(runs: Sequence[Sequence[Trial]]) -> dict[str, Config]:
    """Returns the configs that were a run's fastest at some time from the first counted trial on, by canonical JSON."""
    finds: dict[str, Config] = {}
    for trials in runs:
        for number in np.unique(incumbents(latencies_s(trials))[FIRST_TRIAL - 1 :]):
            if number >= 0:
                finds.setdefault(canonical_json(dict(trials[number].config)), trials[number].config)
    return finds


if __name__ == "__main__":
    main()

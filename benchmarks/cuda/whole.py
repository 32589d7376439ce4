"""Run all benchmarks for a device with one command and without network access; a later call resumes.

    python -m benchmarks.cuda.whole --target cuda --folder docs/results/data/gpu --minutes 9

In the folder, ``doctor.txt`` and ``machine.json`` describe the machine, and ``launches.csv`` shows whether valid
configs run. ``networks.csv`` compares AlexNet, VGG-16 and ResNet-18 at batch 1 with other engines, first with default
configs, then tuned. ``layers.csv`` compares search methods on two layers with many trials: a search in batches of 64 is
random in its first batch, and differences appear only after several. The next call does not repeat completed steps or
searches; it finds the networks in ``work/``. ``--self-test`` runs all steps with minimal work, for an emulated GPU.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anole.compiler.stage import compile_network
from anole.config.entries import TargetSpec
from anole.documents import layout
from anole.documents.build import FILE, read_build
from anole.errors import AnoleError
from anole.extract.stage import extract_model
from anole.files import document_text
from anole.host.machine import host_facts, software_versions
from anole.measure.measurer import Measurer
from anole.measure.options import MeasureOptions
from anole.project.hardware import describe_target
from anole.project.pipeline import Pipeline
from anole.record import Status
from anole.search.evaluators.fixed import Fixed
from anole.search.presets import PRESETS
from anole.targets import get_target
from anole.tune.job import TuneOptions
from anole.tune.stage import tune_model
from benchmarks.common.arguments import log_progress, make_parser
from benchmarks.common.checkout import declare_targets
from benchmarks.search.variants import LAYERS, VARIANTS, Place

HOME = Path(__file__).resolve().parents[2]
PRESETS_COMPARED = ",".join(preset for preset in PRESETS if preset in VARIANTS)
N_SAMPLED = 10_000
SHARES = {"layers": 0.35, "networks": 0.4}
"""Shares of the time limit; the rest is for the launch check, and for searches that end late."""


@dataclass(frozen=True)
class Plan:
    """The plan of all measurements.

    Attributes:
        networks: names in torchvision, with the size of their square images.
        levels: total trials of a network; all networks reach a level before the next one begins.
        baselines: other engines, by the kind of target, with `rounds` turns each.
        layers: layers on which the search methods `variants` are compared, with `trials` on each.
        n_configs: the number of random valid configs to launch for each layer in `launched`.
        has_doctor: whether the peak speed of the machine is measured.
    """

    networks: Mapping[str, int]
    levels: Sequence[int]
    baselines: Mapping[str, str]
    rounds: int
    layers: str
    variants: str
    trials: int
    n_configs: int
    launched: Sequence[str] = tuple(LAYERS)
    has_doctor: bool = True


FULL = Plan(
    networks={"alexnet": 224, "vgg16": 224, "resnet18": 224},
    levels=(0, 64, 192, 512, 1024),
    baselines={"cuda": "torch,torch.compile,untuned", "cpu": "onnxruntime,torch,untuned"},
    rounds=20,
    # A 3x3 and a 1x1 convolution, neither among the slowest; many trials on two layers say more than few on many.
    layers="L6,L8",
    variants=PRESETS_COMPARED,
    # Five batches of 64 trials; all but the first follow a fit.
    trials=320,
    n_configs=24,
)

SELF_TEST = Plan(
    networks={"squeezenet1_1": 32},
    levels=(2,),
    baselines={"cuda": "", "cpu": ""},
    rounds=2,
    layers="small",
    variants="random,anole",
    trials=20,
    n_configs=2,
    launched=("small",),
    has_doctor=False,
)
"""A plan whose steps take a minute on an emulated GPU; the results are meaningless."""


def main() -> None:
    """Run the benchmarks within about `--minutes`."""
    parser = make_parser(__doc__)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda", help="local target")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the results")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--self-test", action="store_true", help="run all steps with minimal work")
    args = parser.parse_args()
    log_progress()
    folder, target, minutes = args.folder.resolve(), args.target, args.minutes
    declare_targets(folder / "work")
    if (reason := _unavailable_reason(target)) is not None:
        raise SystemExit(f"cannot measure on this machine: {reason}")
    plan = SELF_TEST if args.self_test else FULL
    (folder / "work").mkdir(parents=True, exist_ok=True)
    describe_machine(folder, plan)
    check_launches(folder, target, plan)
    compare_networks(folder, target, plan, plan.levels[:1], ends_s=float("inf"))
    compare_searches(folder, target, plan, SHARES["layers"] * minutes)
    compare_networks(folder, target, plan, plan.levels, time.monotonic() + 60 * SHARES["networks"] * minutes)


def describe_machine(folder: Path, plan: Plan) -> None:
    """Write the description of the machine, with its peak speed."""
    facts = {"host": host_facts(), "versions": software_versions(), "gpus": _gpus()}
    (folder / "machine.json").write_text(document_text(facts))
    if plan.has_doctor:
        _write(folder / "doctor.txt", [sys.executable, "-m", "anole", "doctor"])


def check_launches(folder: Path, target: str, plan: Plan) -> None:
    """Write whether valid configs run, unless the file exists.

    A valid config that does not fit the device, does not build or gives wrong results reveals a missing constraint.
    `rejected_share` is the share of a random sample of the layer's space that the constraints reject.
    """
    if (path := folder / "launches.csv").exists():
        return
    with (part := path.with_suffix(".part")).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("layer", "task", "size", "rejected_share", "configs", "ran_share", *Status, "first_error"))
        rows.writerows(launches(target, plan))
    os.replace(part, path)


def launches(kind: str, plan: Plan) -> Iterator[tuple[object, ...]]:
    """Build and run random configs, and yield a row for each layer, and one for all layers."""
    total = Counter[Status]()
    for layer in plan.launched:
        task = Place(kind).task_of(layer)
        space = get_target(task.target).space(task.workload)
        sample = space.vectors(space.draw(N_SAMPLED, np.random.default_rng(0)))
        rejected = sum(space.rejections(sample).values()) / N_SAMPLED
        configs = [space.config(vector) for vector in space.sample(plan.n_configs, np.random.default_rng(1))]
        with Measurer(task, MeasureOptions(Fixed(number=1, repeats=1))) as measurer:
            measurements = list(measurer.measure(configs))
        counts = Counter(measurement.status for measurement in measurements)
        error = next((measurement.error for measurement in measurements if measurement.error), "")
        yield layer, task.label, space.size, f"{rejected:.4f}", *_shares(counts), error
        total += counts
    yield "all", "", "", "", *_shares(total), ""


def _shares(counts: Counter[Status]) -> Sequence[object]:
    """Return the number of configs, the share of correct ones, and the count of each status."""
    return counts.total(), f"{counts[Status.OK] / counts.total():.4f}", *(counts[status] for status in Status)


def compare_searches(folder: Path, target: str, plan: Plan, minutes: float) -> None:
    """Run the search methods on the layers of the plan within a time limit."""
    limits = ["--target", target, "--file", str(folder / "layers.csv"), "--minutes", f"{minutes:.2f}"]
    searches = ["--layers", plan.layers, "--variants", plan.variants, "--trials", str(plan.trials)]
    subprocess.run([*_benchmark("search.layers"), *limits, *searches], check=True, cwd=HOME)


def compare_networks(folder: Path, target: str, plan: Plan, levels: Sequence[int], ends_s: float) -> None:
    """Tune the networks to the next levels while there is time, and write comparisons with other engines.

    Networks are compared again only if one of them has been tuned further.
    """
    project = folder / "work/networks"
    project.mkdir(exist_ok=True)
    networks = [Network(name, size, target) for name, size in plan.networks.items()]
    with chdir(project):
        changed = [_tune(network, level, ends_s) for level in levels for network in networks]
        builds = [network.build for network in networks if (network.build / FILE).exists()]
    options = ["--rivals", plan.baselines[target], "--rounds", str(plan.rounds)]
    if builds and (any(changed) or not (folder / "networks.csv").exists()):
        _write(folder / "networks.csv", [*_benchmark("networks.compare"), *map(str, builds), *options])


@dataclass(frozen=True)
class Network:
    """A torchvision network on a local target, in the working directory; images are square."""

    name: str
    size: int
    target: str

    @property
    def build(self) -> Path:
        """The folder of the build."""
        (build,) = self.pipeline(0).spec.builds
        return Path(build).resolve()

    def pipeline(self, trials: int) -> Pipeline:
        """Return a pipeline with a single build."""
        inputs = {"x": [1, 3, self.size, self.size]}
        spec: Mapping[str, Any] = {
            "models": {self.name: {"source": f"torchvision:{self.name}", "inputs": inputs}},
            "targets": {self.target: {"kind": self.target}},
            "tuning": {"preset": "anole", "total_trials": trials},
            "builds": [{"model": self.name, "target": self.target}],
        }
        path = Path(f"{self.name}.yaml")
        path.write_text(json.dumps(spec))
        return Pipeline.load(path)


def _tune(network: Network, trials: int, ends_s: float) -> bool:
    """Tune and build a network if it has fewer trials and there is time; return whether it was built."""
    n_done = read_build(network.build).trials if (network.build / FILE).exists() else -1
    if n_done >= trials or time.monotonic() > ends_s:
        return False
    logging.info("%s: %d trials", network.name, trials)
    pipeline = network.pipeline(trials)
    (build,) = pipeline.spec.builds.values()
    target, manifest = network.target, pipeline.manifest(build)
    extract_model(pipeline.spec.models[network.name], target, pipeline.descriptions[target], manifest, layout.TASKS)
    receipts = pipeline.receipts(build)
    if trials:  # without trials, all layers keep their default configs, and there is no receipt
        options = TuneOptions(pipeline.tuners[build.name], build.seed, trials, layout.SHARDS)
        tune_model(manifest, layout.TASKS, options, receipts[0])
    compile_network(build.name, pipeline.order(build), manifest, receipts, network.build)
    return True


def _benchmark(name: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.{name}"]


def _write(path: Path, command: Sequence[str]) -> None:
    """Write the output of a command to a file atomically."""
    path.with_suffix(".part").write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=HOME).stdout)
    os.replace(path.with_suffix(".part"), path)


def _unavailable_reason(target: str) -> str | None:
    """Return why a local target cannot be measured, or None if it can."""
    try:
        return get_target(describe_target(TargetSpec(target, target))).absence()
    except AnoleError as error:
        return str(error)


def _gpus() -> list[str]:
    """Return the GPUs with their drivers, clocks and memory."""
    query = "--query-gpu=name,driver_version,clocks.max.sm,memory.total"
    try:
        command = ["nvidia-smi", query, "--format=csv,noheader"]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return result.stdout.strip().splitlines()


if __name__ == "__main__":
    main()

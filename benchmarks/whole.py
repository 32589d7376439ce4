"""Runs all benchmarks of a device with one command and without network access; running it again continues.

    python benchmarks/whole.py --target cuda --folder docs/results/data/gpu --minutes 9

Writes to the folder: ``doctor.txt`` and ``machine.json``, which describe the machine; ``launches.csv``, whether valid
configs run; ``networks.csv``, AlexNet, VGG-16 and ResNet-18 at batch 1 against other engines, first with their default
configs and later tuned; ``tuners*``, the search methods on two layers, in depth: a search in batches of 64 is a random
one until its second batch, and tells nothing before it has had a few. Intermediate measurements are kept in ``work/``
for the next call: a complete step is not repeated, and each call adds trials to the searches until they have all.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from anole.compile.stage import compile_network
from anole.documents import layout
from anole.documents.build import FILE, read_build
from anole.errors import AnoleError
from anole.extract.stage import extract_model
from anole.files import document_text
from anole.host.machine import host_facts, software_versions
from anole.project.hardware import describe_target
from anole.project.pipeline import Pipeline
from anole.search.presets import PRESETS
from anole.spec.entries import TargetSpec
from anole.targets import get_target
from anole.tune.stage import tune_model

HERE = Path(__file__).resolve().parent
NETWORKS = ("alexnet", "vgg16", "resnet18")
PRESETS_COMPARED = ",".join(preset for preset in PRESETS if preset != "dcoc")
RIVALS = {"cuda": "torch,torch.compile,untuned", "cpu": "onnxruntime,torch,untuned"}
STEPS = (0, 64, 192, 512, 1024)
"""Trials of all layers of a network together; all networks reach a level before the next one begins."""

LAYERS_COMPARED = "L6,L8"
"""A 3x3 convolution and a 1x1 one, neither of the slowest; more layers in passing would tell less than two in depth."""

TRIALS, STEP = 320, 64
"""Trials of each tuner on a layer: five batches of those that have batches of 64, so that four follow a fit."""

SHARES = {"tuners": 0.45, "networks": 0.4}
"""Shares of the given time; the rest is for checking that valid configs run."""

logger = logging.getLogger(__name__)


def main() -> None:
    """Runs the benchmarks for the given number of minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda", help="target of this machine")
    parser.add_argument("--folder", type=Path, required=True, help="folder of all results")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="torchvision names, comma-separated")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    folder, target = arguments.folder.resolve(), arguments.target
    if (absence := _absence(target)) is not None:
        raise SystemExit(f"cannot measure on this machine: {absence}")
    (folder / "work").mkdir(parents=True, exist_ok=True)
    describe_machine(folder)
    check_launches(folder, target)
    networks = arguments.networks.split(",")
    compare_networks(folder, target, networks, STEPS[:1], ends_s=float("inf"))
    compare_tuners(folder, target, SHARES["tuners"] * arguments.minutes)
    ends_s = time.monotonic() + 60 * SHARES["networks"] * arguments.minutes
    compare_networks(folder, target, networks, STEPS, ends_s)


def describe_machine(folder: Path) -> None:
    """Writes the description of the machine, with its peak speed."""
    facts = {"host": host_facts(), "versions": software_versions(), "gpus": _gpus()}
    (folder / "machine.json").write_text(document_text(facts))
    _write(folder / "doctor.txt", [sys.executable, "-m", "anole", "doctor"])


def check_launches(folder: Path, target: str) -> None:
    """Writes whether valid configs run, unless the file exists."""
    if not (folder / "launches.csv").exists():
        _write(folder / "launches.csv", [*_benchmark("launches", target), "--configs", "24"])


def compare_tuners(folder: Path, target: str, minutes: float) -> None:
    """Runs every preset on the compared layers for some minutes, and writes the results."""
    place = [*_benchmark("tuners", target), "--folder", str(folder / "work/tuners")]
    compared = ["--variants", PRESETS_COMPARED, "--seeds", "0", "--minutes", f"{minutes:.2f}"]
    depth = ["--layers", LAYERS_COMPARED, "--trials", str(TRIALS), "--step", str(STEP)]
    subprocess.run([*place, *compared, *depth], check=True)
    report = [*_benchmark("tuners_report", target), "--folder", str(folder / "work/tuners"), "--results", str(folder)]
    subprocess.run(report, check=True)


def compare_networks(folder: Path, target: str, networks: Sequence[str], trials: Sequence[int], ends_s: float) -> None:
    """Tunes the networks to the next levels while there is time, and writes how they compare with other engines.

    Nothing is compared anew that has not been tuned further.
    """
    project = folder / "work/networks"
    project.mkdir(exist_ok=True)
    with chdir(project):
        changed = [_tune(network, target, level, ends_s) for level in trials for network in networks]
        builds = [build for network in networks if ((build := _build(network, target)) / FILE).exists()]
    command = [*_benchmark("networks"), *map(str, builds), "--rivals", RIVALS[target], "--rounds", "20"]
    if builds and (any(changed) or not (folder / "networks.csv").exists()):
        _write(folder / "networks.csv", command)


def _tune(network: str, target: str, trials: int, ends_s: float) -> bool:
    """Tunes a network and builds it, unless it has as many trials or the time is up; returns whether it did."""
    known = read_build(folder).trials if ((folder := _build(network, target)) / FILE).exists() else -1
    if known >= trials or time.monotonic() > ends_s:
        return False
    logger.info("%s: %d trials", network, trials)
    pipeline = _pipeline(network, target, trials)
    (build,) = pipeline.spec.builds.values()
    extract_model(
        pipeline.spec.models[network], target, pipeline.descriptions[target], pipeline.manifest(build), layout.TASKS
    )
    receipts = pipeline.receipts(build)
    if trials:  # otherwise all layers keep their default configs, and there is no receipt
        tune_model(
            *(pipeline.manifest(build), layout.TASKS, pipeline.tuners[build.name], build.seed, trials),
            *(layout.SHARDS, receipts[0]),
        )
    compile_network(build.name, pipeline.order(build), pipeline.manifest(build), receipts, folder)
    return True


def _build(network: str, target: str) -> Path:
    """Returns the folder of a network's build."""
    (build,) = _pipeline(network, target, 0).spec.builds.values()
    return Path(build.name).resolve()


def _pipeline(network: str, target: str, trials: int) -> Pipeline:
    """Returns a pipeline with a single build."""
    plain: Mapping[str, Any] = {
        "models": {network: {"source": f"torchvision:{network}", "inputs": {"x": [1, 3, 224, 224]}}},
        "targets": {target: {"kind": target}},
        "tuning": {"preset": "anole", "total_trials": trials},
        "builds": [{"model": network, "target": target}],
    }
    path = Path(f"{network}.yaml")
    path.write_text(json.dumps(plain))
    return Pipeline.load(path)


def _benchmark(name: str, target: str | None = None) -> list[str]:
    return [sys.executable, str(HERE / f"{name}.py"), *(["--target", target] if target else [])]


def _write(path: Path, command: Sequence[str]) -> None:
    """Writes a command's output to a file, completely or not at all."""
    path.with_suffix(".part").write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    os.replace(path.with_suffix(".part"), path)


def _absence(target: str) -> str | None:
    """Returns the reason why a target of this machine cannot be measured on, or None if it can."""
    try:
        return get_target(describe_target(TargetSpec(target, target))).absence()
    except AnoleError as error:
        return str(error)


def _gpus() -> list[str]:
    """Returns the GPUs with their drivers, clocks and memory."""
    query = "--query-gpu=name,driver_version,clocks.max.sm,memory.total"
    try:
        asked = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return asked.stdout.strip().splitlines()


if __name__ == "__main__":
    main()

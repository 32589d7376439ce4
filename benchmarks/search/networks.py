"""The experiment on entire networks: the time to tune and build a network from scratch, and its latency.

Each tuner starts in an empty project, and its seconds are the wall clock time of the entire command, including imports
and compilation. The builds stay in the work folder, and all builds of a network are timed in turns.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anole.documents.build import FILE, read_build
from anole.documents.layout import SHARDS
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.engines import Engine
from anole.evaluate.timing.turns import TurnSchedule
from anole.host.machine import available_cores
from anole.project.pipeline import Pipeline
from anole.search.loop import TUNER_VERSION
from anole.search.presets import read_tuner
from benchmarks.common.builds import Starts, device_of, time_in_turns
from benchmarks.common.rows import quartiles
from benchmarks.networks.engines import OWN, start_engine
from benchmarks.search.experiment import Experiment, Job, Row, version_of
from benchmarks.search.meta_schedule import LIBRARY, meta_schedule_engine
from benchmarks.search.variants import VARIANTS

ROOT = Path(__file__).resolve().parents[2]
WORK = Path("db/networks")
"""The folder of all projects and builds."""

NETWORKS = ("squeezenet1_1", "resnet18", "mobilenet_v2", "alexnet", "vgg16")

OURS: dict[str, Mapping[str, Any]] = {
    "anole": {"tuning": {"preset": "anole", "trials": 128}},
    "anole, 60 s": {"tuning": {"preset": "anole", "total_seconds": 60}},
    "anole, 20 s": {"tuning": {"preset": "anole", "total_seconds": 20}},
    "anole, no trials": {"tuning": {"preset": "anole", "trials": 0}},
    "anole, 4 trials": {"tuning": {"preset": "anole", "trials": 4}},
    "anole, 4 trials, calibrated": {"tuning": {"preset": "anole", "trials": 4}, "calibrate_minutes": 15},
    # Without Winograd, which open spaces exclude, so both have the same untuned network.
    "anole, direct": {"target": {"exact": True}, "tuning": {"preset": "anole", "trials": 128}},
    "anole, direct, no trials": {"target": {"exact": True}, "tuning": {"preset": "anole", "trials": 0}},
    "anole, open": {"target": {"space": "open"}, "tuning": {"preset": "anole", "trials": 128}},
    "random": {"tuning": {"preset": "random", "trials": 128}},
    "random, direct": {"target": {"exact": True}, "tuning": {"preset": "random", "trials": 128}},
    "random, open": {"target": {"space": "open"}, "tuning": {"preset": "random", "trials": 128}},
    # As published: open spaces, at most 1000 trials per task, and Chameleon's 16 iterations.
    **{
        name: {
            "target": {"space": "open"},
            "tuning": {**VARIANTS[variant], "trials": 1000, "max_iterations": iterations},
        }
        for name, variant, iterations in (
            ("autotvm", "SA+greedy", 16),
            ("autotvm with adaptive sampling", "SA+AS", 16),
            ("chameleon with greedy sampling", "PPO+greedy", 16),
            ("chameleon", "PPO+AS", 16),
            ("adatune", "RFEI+CSA+CV", 32),
        )
    },
    # In the same spaces, for the same time as `anole, 60 s`.
    **{
        f"{name}, 60 s": {"target": {"space": "open"}, "tuning": {**VARIANTS[variant], "total_seconds": 60}}
        for name, variant in (("autotvm", "SA+greedy"), ("chameleon", "PPO+AS"), ("adatune", "RFEI+CSA+CV"))
    },
}
"""Anole's tuners: settings of the target, the ``tuning`` section of models.yaml, and minutes of calibration
before."""

THEIRS = {"metaschedule 64": 64, "metaschedule 256": 256}
"""TVM's own tuner, with trials per task."""

REFERENCES = ("onnxruntime", "openvino", "torch.compile")
"""Other timed engines; the last one tunes when it starts."""

ORDER = (
    *("anole", "anole, no trials", "anole, 4 trials", "anole, 4 trials, calibrated", "anole, 60 s", "anole, 20 s"),
    *("autotvm, 60 s", "chameleon, 60 s", "adatune, 60 s"),
    *("anole, direct", "anole, direct, no trials", "anole, open", "random", "random, direct", "random, open"),
    *("metaschedule 64", "chameleon", "adatune"),
    *("autotvm with adaptive sampling", "autotvm", "chameleon with greedy sampling", "metaschedule 256"),
)
"""The order of the tuners, the slowest last."""

_SCHEDULE = TurnSchedule(max_rounds=30)


def jobs_of_tuning() -> Iterator[Job]:
    """Yield network, tuner, seed and version: one network with all tuners before the next."""
    for network in NETWORKS:
        for tuner in ORDER:
            yield network, tuner, "0", _version(tuner)


def run_tuning(job: Job) -> Sequence[Row]:
    """Tune and compile a network in an empty project, and return the effort."""
    network, tuner, seed, _ = job
    folder = _folder(network, tuner)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = _anole_command(network, tuner, int(seed), folder) if tuner in OURS else _tvm_command(network, tuner)
    if minutes := OURS.get(tuner, {}).get("calibrate_minutes"):
        shutil.copytree(_calibrate(minutes) / SHARDS, folder / SHARDS)
    began_s = time.perf_counter()
    with (folder / "log.txt").open("wb") as log:
        subprocess.run(command, cwd=folder, check=True, stdout=log, stderr=log, env=_environment())
    seconds = time.perf_counter() - began_s
    return [{"seconds": f"{seconds:.1f}", **_effort(folder)}]


def _calibrate(minutes: int) -> Path:
    """Return a project with the trials of a calibration, recorded on first use."""
    folder = WORK / "calibrated"
    if not (folder / SHARDS).exists():
        folder.mkdir(parents=True, exist_ok=True)
        _anole_command(NETWORKS[0], "anole", 0, folder)
        command = [sys.executable, "-m", "anole", "calibrate", "cpu", "--minutes", str(minutes)]
        subprocess.run(command, cwd=folder, check=True, env=_environment())
    return folder


def jobs_of_timing() -> Iterator[Job]:
    """Yield network and version, which covers all builds of the network."""
    for network in NETWORKS:
        if not OURS.keys().isdisjoint(found := _finished_builds(network)):
            stamps = {tuner: path.stat().st_mtime_ns for tuner, path in found.items()}
            yield network, version_of(stamps)


def run_timing(job: Job) -> Sequence[Row]:
    """Time all builds of a network in turns, and return a row for each."""
    network, _ = job
    builds = _finished_builds(network)
    build = next(path.parent for name, path in builds.items() if name in OURS)

    def starts(scratch: Path) -> Starts:
        return {name: partial(_start, name, network, build, scratch) for name in (*builds, *REFERENCES)}

    started, times = time_in_turns(build, device_of(read_build(build)), starts, _SCHEDULE)
    fastest = [min(map(np.median, turns)) for turns in zip(*times.values(), strict=True)]
    rows = []
    for name, engine in started.items():
        ratio = np.median([np.median(turn) / best for turn, best in zip(times[name], fastest, strict=True)])
        latencies = quartiles("latency", 1e3 * np.concatenate(times[name]), "_ms")
        figures = {column: f"{value:.4f}" for column, value in {**latencies, "ratio": ratio}.items()}
        rows.append({"engine": name, **figures, "start_s": f"{engine.start_s:.1f}"})
    return rows


TUNING = Experiment(
    "networks_tuned",
    ("network", "tuner", "seed", "version"),
    ("seconds", "trials", "tasks"),
    jobs_of_tuning,
    run_tuning,
    is_timed=True,
)

TIMING = Experiment(
    "networks_timed",
    ("network", "version"),
    ("engine", "latency_ms", "latency_q1_ms", "latency_q3_ms", "ratio", "start_s"),
    jobs_of_timing,
    run_timing,
    is_timed=True,
)


def _version(tuner: str) -> str:
    """Return the version of a tuner."""
    if tuner in THEIRS:
        return version_of(THEIRS[tuner])
    plain = dict(OURS[tuner]["tuning"])
    budget = plain.pop("trials") if "trials" in plain else f"{plain.pop('total_seconds')} s"
    before = filter(None, [OURS[tuner].get("calibrate_minutes")])
    return version_of(read_tuner(plain).to_json(), TUNER_VERSION, budget, OURS[tuner].get("target", ""), *before)


def _folder(network: str, tuner: str) -> Path:
    return WORK / network / tuner.replace(", ", "_").replace(" ", "_")


def _finished_builds(network: str) -> dict[str, Path]:
    """Return the main file of each finished build of a network, by tuner."""
    files = {}
    for tuner in ORDER:
        folder = _folder(network, tuner)
        if not folder.exists():
            continue
        path = _build_folder(folder) / FILE if tuner in OURS else folder / LIBRARY
        if path.exists():
            files[tuner] = path
    return files


def _build_folder(project: Path) -> Path:
    """Return the folder of a project's only build, which may not exist yet."""
    (build,) = Pipeline.load(project / "models.yaml").spec.builds
    return project / "builds" / build


def _anole_command(network: str, tuner: str, seed: int, folder: Path) -> list[str]:
    """Write a project's models.yaml and return the command that builds it."""
    plain = {
        "models": {network: {"source": f"torchvision:{network}", "inputs": {"x": [1, 3, 224, 224]}}},
        "targets": {"cpu": {"kind": "cpu", **OURS[tuner].get("target", {})}},
        "tuning": {**OURS[tuner]["tuning"], "seed": seed},
        "builds": [{"model": network, "target": "cpu"}],
    }
    (folder / "models.yaml").write_text(json.dumps(plain))
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "all"]
    return [*snakemake, str(_build_folder(folder).relative_to(folder))]


def _tvm_command(network: str, tuner: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.search.meta_schedule", network, ".", "--trials", str(THEIRS[tuner])]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT)]),
        "TVM_NUM_THREADS": str(available_cores()),
    }


def _effort(project: Path) -> dict[str, int]:
    """Return the trials and tasks of a project; empty unless it is one of Anole's."""
    found = [json.loads(path.read_text()) for path in project.glob("work/tuned*/**/*.json")]
    receipts = [receipt for each in found for receipt in each.get("receipts", [each])]
    return {"trials": sum(each["measured"] for each in receipts), "tasks": len(receipts)} if receipts else {}


def _start(name: str, network: str, build: Path, scratch: Path) -> Engine:
    """Start one of a network's engines, on the inputs of a build of Anole."""
    if name in REFERENCES:
        return start_engine(name, build, scratch)
    if name in THEIRS:
        return meta_schedule_engine(_folder(network, name), timing_inputs(read_build(build)))
    return start_engine(OWN, _build_folder(_folder(network, name)), scratch)

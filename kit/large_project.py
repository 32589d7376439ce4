"""A generator of large projects with records of every kind, as if many tasks had been tuned with several presets."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from anole.documents.build import Build, BuiltTask, Coverage, TensorInfo, write_build
from anole.documents.evaluation import Evaluation, Latency, LoadLatency, write_evaluation
from anole.documents.manifest import ListedTask, Manifest, Origin, write_manifest, write_task
from anole.keys import canonical_json
from anole.record import Config, Confirmation, Measurement, Run, Source, SpaceFacts, Status, Trial
from anole.store.content import ShardContent, encode_shard
from anole.store.shard import shard_path
from anole.task import Conv2d, Task

TARGETS = (
    {"kind": "cpu", "mcpu": "znver4", "threads": 2, "features": ["avx2", "avx512f"], "model": "AMD EPYC 9R14"},
    {"kind": "cpu", "mcpu": "sapphirerapids", "threads": 2, "features": ["avx2", "avx512f"], "model": "Intel Xeon"},
    {"kind": "cuda", "arch": "sm_90", "model": "NVIDIA H100 80GB HBM3", "max_threads_per_block": 1024},
)
HOSTS = (
    {"name": "one", "system": "Linux 6.1", "architecture": "x86_64", "processor": "AMD EPYC 9R14", "cores": 2},
    {"name": "two", "system": "Linux 6.1", "architecture": "x86_64", "processor": "Intel Xeon", "cores": 2},
    {"name": "three", "system": "Linux 6.1", "architecture": "x86_64", "processor": "Intel Xeon", "cores": 26},
)
VERSIONS = {"python": "3.11.7", "anole": "0.4.0", "apache-tvm": "0.27.0.post1", "numpy": "2.4.6", "xgboost": "3.2.0"}
PRESETS = {"anole": (1.0, 64, 0.01), "autotvm": (0.2, 1000, 0.3), "chameleon": (0.2, 332, 0.2)}
"""For each preset, the share of tasks that it tunes, its trials per task, and the share of failed trials."""

FAILURES = (
    (Status.RUN_ERROR, "the process was ended by signal {0} (SIGSEGV)\n  in config {1} of the batch"),
    (Status.BUILD_ERROR, "InternalError: Check failed: (lanes <= {0}) is false: too wide\n  at codegen, step {1}"),
    (Status.BUILD_TIMEOUT, "building took more than 20 s"),
    (Status.WRONG_ANSWER, "the answer differs by 0.{0}\n  at element {1}"),
)


def make_project(folder: Path, n_tasks: int, n_trials: int) -> None:
    """Write a project with about `n_trials` trials, distributed over the presets as in `PRESETS`."""
    tasks = [Task(_workload(number), TARGETS[number % len(TARGETS)], 5) for number in range(n_tasks)]
    scale = n_trials / sum(n_tasks * share * trials for share, trials, _ in PRESETS.values())
    runs: dict[str, Run] = {}
    for number, task in enumerate(tasks):
        for preset, (share, trials, failure_share) in PRESETS.items():
            if number % round(1 / share):
                continue
            host = HOSTS[number % len(TARGETS)]
            run = Run(task.key, preset, 0, 4, _settings(preset), 2, host, VERSIONS)
            runs.setdefault(task.key, run)
            rng = random.Random(f"{number} {preset}")
            content = _content(rng, run, task, max(1, round(trials * scale)), failure_share)
            path = shard_path(folder / "db/shards", run)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_shard(content, path))
    built = [task for task in tasks if task.target is TARGETS[0]]
    for number in range(0, len(built), 10):
        _make_model(folder, f"model{number // 10}", built[number : number + 20], runs)


def _workload(number: int) -> Conv2d:
    number //= len(TARGETS)
    size, channels = (7, 14, 28, 56, 112)[number % 5], (16, 24, 32, 48, 64, 96, 128, 192)[number // 5 % 8]
    kernel = (1, 3, 5)[number // 40 % 3]
    padding = (kernel // 2,) * 4
    return Conv2d(1, size, size, channels, 8 * (1 + number // 120), (kernel, kernel), padding=padding)


def _settings(preset: str) -> dict[str, object]:
    explorer = {"name": "guided_annealing", "n_chains": 128, "n_steps": 150, "patience": 25, "led_share": 0.75}
    surrogate = {"name": "boosted_trees", "max_depth": 6, "learning_rate": 0.1, "gamma": 1e-4, "max_rounds": 300}
    evaluator = {"name": "adaptive", "micro_batch": 50, "threshold": 0.1, "max_s": 0.1, "slow_factor": 3.0}
    parts = {"explorer": explorer, "sampler": {"name": "greedy", "epsilon": 0.05}, "surrogate": surrogate}
    return {"preset": preset, "batch": 16, "n_confirm": 8, **parts, "evaluator": evaluator}


def _content(rng: random.Random, run: Run, task: Task, n_trials: int, failure_share: float) -> ShardContent:
    best_s = task.workload.flop / rng.uniform(2e10, 6e11)
    trials = tuple(_trial(rng, task, number, best_s, failure_share) for number in range(n_trials))
    fastest = sorted((trial for trial in trials if trial.gflops), key=lambda trial: trial.measurement.latency_s or 0.0)
    confirmations = tuple(
        Confirmation(t.config, _success(rng, t.measurement.latency_s or 0.0, 20), n_trials, rank, _timestamp(n_trials))
        for rank, t in enumerate(fastest[:8])
    )
    iterations = {number: {"search_s": rng.random(), "queries": 19200.0} for number in range((n_trials + 15) // 16)}
    facts = SpaceFacts(10**6, 4096, {"the accumulators do not fit": 912, "too few accumulators": 1904})
    sources = (Source(task.key, run.key, 64),) if rng.random() < 0.5 else ()
    configs = tuple(canonical_json(trial.config) for trial in trials)
    return ShardContent(run, task, trials, configs, confirmations, iterations, _timestamp(0), sources, facts)


def _trial(rng: random.Random, task: Task, number: int, best_s: float, failure_share: float) -> Trial:
    latency_s = None if rng.random() < failure_share else best_s * (1 + rng.lognormvariate(0, 1) / (1 + number / 16))
    gflops = None if latency_s is None else task.workload.flop / latency_s / 1e9
    if latency_s is None:
        status, text = rng.choice(FAILURES)
        measurement = Measurement(status, text.format(rng.randrange(8), number), None, build_s=0.4, run_s=rng.random())
    else:
        measurement = _success(rng, latency_s, 5)
    return Trial(number, number // 16, _config(number), measurement, 0.2 * (number + 1), gflops, _timestamp(number))


def _success(rng: random.Random, latency_s: float, repeats: int) -> Measurement:
    cv = rng.uniform(0.001, 0.05)
    costs_s = 0.3 + rng.random() / 3, 0.1 + rng.random() / 10
    return Measurement(Status.OK, None, latency_s, cv * latency_s, cv, repeats, *costs_s, rng.uniform(1e-7, 5e-7))


def _config(number: int) -> Config:
    return {
        "algorithm": ("direct", "winograd")[number % 2],
        "tile_f": [1 << number // 2 % 4, 1, 16],
        "tile_y": [2, 1, 1 << number // 8 % 4],
        "tile_x": [1 << number // 32 % 4, 1],
        "tile_rc": [8, 1 << number // 128 % 4],
        "tile_ry": [1, 3],
        "tile_rx": [3, 1],
        "auto_unroll_max_step": 16 << number // 512 % 4,
        "unroll_explicit": number // 2048 % 2,
        "parallel_order": "yf",
        "tile_order": "yfx",
        "pad_at": "root",
        "step": number // 4096,
    }


def _timestamp(second: int) -> str:
    return time.strftime("2026-11-%dT%H:%M:%S.000Z", time.gmtime(20 * 86400 + second))


def _make_model(folder: Path, name: str, tasks: Sequence[Task], runs: dict[str, Run]) -> None:
    for task in tasks:
        write_task(folder / f"work/tasks/{task.key}.json", task)
    entries = [
        ListedTask(task.key, task.label, task.workload.flop, 1 + n % 4, (f"c{n}",)) for n, task in enumerate(tasks)
    ]
    flop = sum(task.weight * task.flop for task in entries)
    entry = {"source": f"torchvision:{name}", "inputs": {"x": [1, 3, 224, 224]}}
    origin = Origin(entry, TARGETS[0], {"extract": 1})
    manifest = Manifest(name, "cpu", str(entry["source"]), {"x": [1, 3, 224, 224]}, origin, tuple(entries), flop)
    write_manifest(folder / f"work/models/{name}/cpu.json", manifest)
    built = tuple(
        BuiltTask(task.key, task.label, task.flop, task.weight, task.layers, _config(0), "tuned", run, 1e-3, None)
        for task, run in ((task, runs[task.key].key) for task in entries)
    )
    build = Build(
        name=f"{name}-cpu",
        model=name,
        entry=entry,
        target="cpu",
        target_description=TARGETS[0],
        preset="anole",
        trials=64,
        seed=0,
        created_at=_timestamp(5000),
        versions=VERSIONS,
        coverage=Coverage(flop, flop, 1.0),
        tasks=built,
        size_bytes=1 << 20,
        inputs=(TensorInfo("x", (1, 3, 224, 224), "float32"),),
        outputs=(TensorInfo("y", (1, 1000), "float32"),),
    )
    (folder / "builds" / build.name).mkdir(parents=True)
    write_build(folder / "builds" / build.name, build)
    rng = random.Random(name)
    speedup = rng.uniform(0.9, 3)
    latency = Latency("torch", 0.01, 0.01 * speedup, speedup, 4e-6, 1e-4, 2e-4, rounds=50)
    loads = tuple(
        LoadLatency(engine, neighbours, p50_s, 1.2 * p50_s, 1.5 * p50_s, 100, 6)
        for neighbours in (0, 1, 2)
        for engine, p50_s in (("build", 0.01 * (1 + neighbours)), ("torch", 0.01 * speedup * (1 + neighbours)))
    )
    evaluation = Evaluation(build.name, _timestamp(6000), 2, HOSTS[0], VERSIONS, 1.0, (latency,), load_latencies=loads)
    write_evaluation(folder / f"work/evaluations/{build.name}.json", evaluation)

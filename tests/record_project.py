"""A project folder filled with records like those of the stages, without running them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from anole.documents.build import FILE, Build, BuiltTask, Coverage, TensorInfo, read_build, write_build
from anole.documents.evaluation import (
    Evaluation,
    KernelLatency,
    KernelProfile,
    Latency,
    LoadLatency,
    SizesLatency,
    read_evaluation,
    write_evaluation,
)
from anole.documents.manifest import ListedTask, Manifest, Origin, read_manifest, read_task, write_manifest, write_task
from anole.documents.receipt import (
    MeasuredConfig,
    Receipt,
    Refined,
    SharedReceipts,
    TriedConfig,
    TuningReceipt,
    read_receipts,
    read_refined,
)
from anole.merge.database import Merged, merge_files
from anole.record import Confirmation, Measurement, Run, SpaceFacts, Status, Trial
from anole.store.lines import strip_checksum
from anole.store.shard import Shard, shard_path
from anole.task import Conv2d, Dense, Task

CPU = {"kind": "cpu", "mcpu": "znver4", "threads": 2}
CONV = Task(Conv2d(1, 56, 56, 64, 64, (3, 3), padding=(1, 1, 1, 1)), CPU, 1)
WIDE = Task(Conv2d(1, 28, 28, 128, 128, (3, 3), padding=(1, 1, 1, 1)), CPU, 1)
DENSE = Task(Dense(1, 512, 1000), CPU, 1)
OTHER = Task(Dense(1, 256, 10), CPU, 1)
SPEC = """\
models:
  net: {source: "torch:tiny:residual", inputs: {x: [1, 3, 16, 16]}}
  words: {source: "onnx:words.onnx"}
targets:
  here: &target {kind: cpu, threads: 2}
  board: {<<: *target, mcpu: znver4, measure: {rpc: "10.0.0.2:9190", key: pi}, required: false}
  npu: {kind: vta, geometry: search}
tuning: {preset: autotvm, trials: 64, seed: 0}
builds:
- {model: net, target: here, refine: 2}
- {model: words, target: board, name: other, total_trials: 1000}
"""
"""A models.yaml; its project has the files tiny.py and words.onnx."""

SIZES = ({"batch": 1, "tokens": 16}, {"batch": 8, "tokens": 16})
LOADS = tuple(
    LoadLatency(engine, neighbours, p50_s, p95_s, p99_s, runs, rounds=6, start_s=1.5)
    for engine, neighbours, p50_s, p95_s, p99_s, runs in (
        ("build", 0, 0.01, 0.02, 0.025, 600),
        ("torch", 0, 0.024, 0.03, 0.04, 250),
        ("onnxruntime", 0, 0.018, 0.05, 0.06, 330),
        ("build", 2, 0.16, 0.2, 0.25, 48),
        ("torch", 2, 0.2, 0.25, 0.3, 48),
        ("onnxruntime", 2, 0.06, 0.09, 0.1, 102),
    )
)
KERNELS = KernelProfile(
    0.017,
    (
        KernelLatency("fused_conv2d", ("conv0", "conv1"), 4, CONV.workload.flop, 1_753_088, 0.0085, 1e12),
        KernelLatency("fused_pool", (), 1, 0, 4_000_000, 0.0001),
        KernelLatency("fused_dense", ("conv1",), 1, DENSE.workload.flop, 2_054_048, 0.0007),
    ),
    peak_flop_per_s=5e11,
    peak_bytes_per_s=1e11,
)


def run_of(task: Task, preset: str = "autotvm", seed: int = 0) -> Run:
    host = {"cpu": "EPYC", "cores": 2}
    return Run(task.key, preset, seed, 1, {"explorer": {"chains": 128}}, 2, host, {"tvm": "0.27.0"})


def trial_of(number: int, latency_s: float | None = 1e-3, flop: int = CONV.workload.flop, **config: Any) -> Trial:
    """Return a trial; a failure if there is no latency."""
    if latency_s is None:
        measurement = Measurement(Status.RUN_ERROR, f"Segmentation fault\nat trial {number}", build_s=0.1, run_s=0.2)
    else:
        measurement = Measurement(Status.OK, None, latency_s, latency_s / 50, 0.02, 5, 0.1, 0.2)
    gflops = flop / latency_s / 1e9 if latency_s else None
    knobs = {"tile_f": [number + 1, 1, 1, 16], "unroll_explicit": number % 2, **config}
    created_at = f"2026-11-21T10:00:{number % 60:02d}.000Z"
    return Trial(number, number // 4, knobs, measurement, 0.35 * (number + 1), gflops, created_at)


def confirmation_of(trial: Trial, latency_s: float | None, after_trials: int, rank: int = 0) -> Confirmation:
    ok = latency_s is not None
    measurement = Measurement(
        Status.OK if ok else Status.WRONG_ANSWER, None if ok else "differs by 0.3", latency_s, repeats=20
    )
    return Confirmation(trial.config, measurement, after_trials, rank, "2026-11-21T10:05:00.000Z")


def tried_of(latency_alone_s: float, latency_s: float | None, chosen: bool = False) -> TriedConfig:
    """Return a candidate of a build with its latency in isolation, and in the network if it works there."""
    config = {"tile_f": [1, 1, 1, 16], "alone_us": round(1e6 * latency_alone_s)}
    return TriedConfig(config, latency_s, latency_alone_s, chosen)


class Project:
    """A project folder with methods that write the files of stages, and sample data."""

    CONV, WIDE, DENSE, OTHER, LOADS, KERNELS = CONV, WIDE, DENSE, OTHER, LOADS, KERNELS
    run_of = staticmethod(run_of)
    trial_of = staticmethod(trial_of)
    confirmation_of = staticmethod(confirmation_of)
    tried_of = staticmethod(tried_of)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards = folder / "work" / "shards"
        self.database = folder / "db" / "tuning.sqlite"

    def open(self, run: Run | None = None, task: Task = CONV, *, wait: bool = False) -> Shard:
        return Shard.open(self.shards, run or run_of(task), task, wait=wait)

    def tune(
        self, run: Run, task: Task, latencies_s: Iterable[float | None], confirmed_s: Sequence[float | None] = ()
    ) -> Path:
        """Append trials, and confirm the fastest with the confirmed latencies."""
        with Shard.open(self.shards, run, task) as shard:
            for latency_s in latencies_s:
                trial = trial_of(len(shard.trials), latency_s, task.workload.flop)
                if trial.number % 4 == 0:
                    shard.append_iteration(trial.iteration, {"steps": 500.0, "loss": 0.25})
                shard.append_trial(trial)
            successes = [trial for trial in shard.trials if trial.measurement.latency_s]
            fastest = sorted(successes, key=lambda trial: trial.measurement.latency_s or 0.0)
            for rank, latency_s in enumerate(confirmed_s):
                shard.append_confirmation(confirmation_of(fastest[rank], latency_s, len(shard.trials), rank))
        return shard_path(self.shards, run)

    def extract(self, model: str, tasks: Sequence[tuple[Task, int]], target: str = "cpu") -> Path:
        for task, _ in tasks:
            write_task(self.folder / f"work/tasks/{task.key}.json", task)
        source, inputs = f"torchvision:{model}", {"x": [1, 3, 224, 224]}
        listed = (
            ListedTask(task.key, task.label, task.workload.flop, weight, (f"conv{number}",))
            for number, (task, weight) in enumerate(tasks)
        )
        flop = sum(weight * task.workload.flop for task, weight in tasks)
        origin = Origin({"source": source, "inputs": [*map(list, inputs.items())]}, CPU, {"extract": 1})
        path = self.folder / f"work/models/{model}/{target}.json"
        write_manifest(path, Manifest(model, target, source, inputs, origin, tuple(listed), flop))
        return path

    def compile(
        self,
        model: str,
        tasks: Sequence[tuple[Task, int, Run | None]],
        created_at: str = "2026-11-21T11:00:00.000Z",
        preset: str = "autotvm",
        refined: Mapping[str, Sequence[TriedConfig]] | None = None,
    ) -> Path:
        """Write a build; `refined` maps keys of tasks to the candidates tried within the network."""
        total = sum(weight * task.workload.flop for task, weight, _ in tasks)
        tuned = sum(weight * task.workload.flop for task, weight, run in tasks if run)
        built = (
            BuiltTask(
                key=task.key,
                label=task.label,
                flop=task.workload.flop,
                weight=weight,
                layers=(f"conv{number}",),
                config={"tile_f": [1, 1, 1, 16]} if run else None,
                matched="tuned" if run else "default",
                run_key=run.key if run else None,
                latency_s=2e-3 if run else None,
                reason=None if run else "no trial succeeded",
                refined=tuple((refined or {}).get(task.key, ())),
            )
            for number, (task, weight, run) in enumerate(tasks)
        )
        build = Build(
            name=f"{model}-cpu",
            model=model,
            entry={"source": f"torchvision:{model}", "inputs": [["x", [1, 3, 224, 224]]]},
            target="cpu",
            target_description=CPU,
            preset=preset,
            trials=8,
            seed=0,
            created_at=created_at,
            inputs=(TensorInfo("x", (1, 3, 224, 224), "float32"),),
            outputs=(TensorInfo("y", (1, 1000), "float32"),),
            coverage=Coverage(tuned, total, tuned / total),
            tasks=tuple(built),
            versions={"tvm": "0.27.0"},
            size_bytes=123456,
        )
        folder = self.folder / f"builds/{model}-cpu"
        folder.mkdir(parents=True, exist_ok=True)
        write_build(folder, build)
        return folder / FILE

    def evaluate(
        self,
        build: str,
        latency_s: float = 0.017,
        created_at: str = "2026-11-21T12:00:00.000Z",
        output_variation: float | None = None,
        loads: tuple[LoadLatency, ...] | None = None,
        sizes: Sequence[Mapping[str, int]] | None = None,
        kernels: KernelProfile | None = None,
        precision: str = "float32",
    ) -> Path:
        latencies = (
            Latency(
                reference=reference,
                reference_precision="float32",
                latency_s=latency_s,
                latency_std_s=1e-4,
                reference_latency_s=reference_s,
                reference_latency_std_s=2e-4,
                speedup=reference_s / latency_s,
                relative_error=4e-6,
                rounds=50,
                output_variation=output_variation,
                speedup_low=0.98 * reference_s / latency_s,
                speedup_high=1.03 * reference_s / latency_s,
            )
            for reference, reference_s in (("torch", 0.0244), ("onnxruntime", 0.017))
        )
        path = self.folder / f"work/evaluations/{build}.json"
        versions = {"torch": "2.15.0"}
        measured = tuple(latencies)
        evaluation = Evaluation(build, created_at, 2, {"cpu": "EPYC"}, versions, 0.9, measured, precision=precision)
        others = None if sizes is None else tuple(SizesLatency(each, measured) for each in sizes)
        measurements = {"load_latencies": loads, "kernel_profile": kernels, "sizes_latencies": others}
        write_evaluation(path, replace(evaluation, **measurements))
        return path

    def fill(self) -> None:
        """Tune, extract, compile and evaluate two models that share a task."""
        runs = {task.key: run_of(task) for task in (CONV, WIDE, DENSE)}
        self.tune(runs[CONV.key], CONV, [4e-3, None, 2e-3, 3e-3, 2.1e-3, None], [2.2e-3, 2.05e-3])
        with Shard.open(self.shards, runs[CONV.key], CONV) as shard:
            shard.append_space(SpaceFacts(50_000, 4096, {"too many threads": 1024, "too wide": 512}))
        self.tune(run_of(CONV, "random"), CONV, [4e-3, 5e-3, None, 6e-3])
        self.tune(runs[WIDE.key], WIDE, [3e-3, 2.9e-3, 1e-3])
        self.tune(runs[DENSE.key], DENSE, [None, None])
        self.extract("resnet18", [(CONV, 4), (DENSE, 1)])
        self.extract("resnet34", [(CONV, 6), (WIDE, 2), (DENSE, 1)])
        tried = [tried_of(2e-3, 2.2e-3), tried_of(2.1e-3, 1.9e-3, chosen=True), tried_of(3e-3, None)]
        self.compile("resnet18", [(CONV, 4, runs[CONV.key]), (DENSE, 1, None)], refined={CONV.key: tried})
        self.compile("resnet34", [(CONV, 6, runs[CONV.key]), (WIDE, 2, runs[WIDE.key]), (DENSE, 1, None)])
        self.evaluate("resnet18-cpu", loads=LOADS, kernels=KERNELS, sizes=SIZES)
        self.evaluate("resnet34-cpu")

    def merge(self, shards: Path | None = None, database: Path | None = None) -> Merged:
        return merge_files(
            shards or self.shards,
            sorted(self.folder.glob("work/models/*/*.json")),
            sorted(path.parent for path in self.folder.glob("builds/*/build.json")),
            sorted(self.folder.glob("work/evaluations/*.json")),
            database or self.database,
        )

    def rows(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.database)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, parameters)]


RECEIPT = TuningReceipt(
    CONV.key, run_of(CONV).key, 8, {"tile_f": [1, 1, 1, 16], "unroll_explicit": 0}, 2e-3, (),
    (MeasuredConfig({"tile_f": [1, 1, 1, 16], "unroll_explicit": 0}, 2e-3),),
    label=CONV.label, preset="autotvm", seed=0, measured=8, status="tuned", confirmed=True, gflops=115.6,
    statuses={"ok": 7, "run_error": 1}, elapsed_s=12.5,
)  # fmt: skip
_TRIED = Receipt(CONV.key, run_of(CONV).key, 8, RECEIPT.config, 2e-3, refined=(tried_of(2e-3, 2.1e-3, chosen=True),))
RECEIPTS: Mapping[str, TuningReceipt | SharedReceipts | Refined] = {
    "receipt": RECEIPT,
    "shared receipts": SharedReceipts(8, (RECEIPT,)),
    "refined": Refined("net-cpu", "2026-11-21T11:00:00.000Z", 0.017, 0.018, 0.95, True, (_TRIED,)),
}
READERS: Mapping[str, Callable[[Path], Any]] = {
    "task": read_task,
    "manifest": read_manifest,
    "build": lambda path: read_build(path.parent),
    "evaluation": read_evaluation,
    "receipt": lambda path: read_receipts([path]),
    "shared receipts": lambda path: read_receipts([path]),
    "refined": read_refined,
}
"""The function that reads each kind of document."""


def execute(database: Path, script: str) -> None:
    """Change a database, ignoring its constraints."""
    with closing(sqlite3.connect(database)) as connection:
        for pragma in ("ignore_check_constraints = on", "foreign_keys = off"):
            connection.execute(f"pragma {pragma}")
        connection.executescript(script)


def as_first_schema(data: bytes) -> bytes:
    """Return the bytes of a shard in the first schema, without checksums."""
    lines = b"".join(strip_checksum(line) + b"\n" for line in data.splitlines())
    return lines.replace(b'"schema":2', b'"schema":1')


def dump_of(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the schema and all rows, in sorted order."""
    with closing(sqlite3.connect(database)) as connection:
        schema = connection.execute("select name, type, sql from sqlite_master where sql is not null").fetchall()
        tables = [name for name, kind, _ in schema if kind == "table"]
        rows = {table: connection.execute(f"select * from {table}").fetchall() for table in tables}
    return {table: sorted(found, key=repr) for table, found in {**rows, "schema": schema}.items()}

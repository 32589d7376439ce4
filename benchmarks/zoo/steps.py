"""Run one network of the zoo through all stages, and report the progress after each."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anole.config.entries import ModelSpec
from anole.documents.build import Build, read_build
from anole.documents.evaluation import read_evaluation
from anole.errors import AnoleError
from anole.evaluate.timing.turns import TurnSchedule
from benchmarks.common.arguments import make_parser
from benchmarks.networks.engines import compile_untuned
from benchmarks.zoo.jobs import DONE, Row, shorten, write_report

_FOLDER = Path("build")
_ROUNDS = "3"
"""The rounds of the evaluation, whose latencies are not used."""
_EVALUATION = Path("evaluation.json")
_N_SLOWEST = 3
_MIN_TIME_SHARE, _MAX_ROOF_SHARE = 0.03, 0.3
"""Kernels with more than this share of the time, and below this share of the roof, are reported."""
_NOISE = 0.01


def main() -> None:
    """Run one network; called by `sweep.py`."""
    parser = make_parser(__doc__)
    parser.add_argument("network", help="name in the zoo")
    parser.add_argument("--rounds", type=int, default=15, help="turns per engine; 0 to skip timing")
    parser.add_argument("--mutate", action="store_true", help="also check that noise in single layers is caught")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    run_stages(args.network, args.rounds, args.mutate)


def run_stages(name: str, rounds: int, mutate: bool) -> None:
    """Extract, compile, evaluate and time a network in the working directory."""
    row: Row = {}

    @contextmanager
    def time_stage(title: str) -> Iterator[None]:
        row["stage"] = title
        write_report(row)
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        yield
        row[f"{title}_s"], row[f"{title}_cpu_s"] = time.monotonic() - began_s, time.process_time() - began_cpu_s

    try:
        with time_stage("extract"):
            model, target, manifest = _extract(name)
            row["processor"] = "{model} ({mcpu})".format(**target.description)
            row["extracted"] = 1
        with time_stage("compile"):
            compile_untuned(model, manifest, model.name, _FOLDER)
            row["compiled"] = 1
        os.environ.update(target.environment())
        with time_stage("evaluate"):
            refusal = _evaluate(row)
        if rounds:
            with time_stage("compare"):
                _compare(row, rounds)
            with time_stage("profile"):
                row["slowest"], row["far"] = _profile()
        if mutate and model.scheme != "onnx":
            with time_stage("mutate"):
                row["uncaught"] = " ".join(find_undetected(read_build(_FOLDER), target.threads))
        row["stage"] = "evaluate" if refusal else DONE
        row["reason"] = refusal
    except (AnoleError, subprocess.CalledProcessError) as error:
        row["reason"] = shorten(str(error))
    write_report(row)


def _extract(name: str) -> tuple[ModelSpec, Any, Any]:
    """Return a network's entry, the local CPU target, and the manifest."""
    from anole.extract.stage import extract_tasks
    from anole.targets import get_target
    from anole.targets.cpu.settings import describe_cpu
    from benchmarks.zoo.networks import zoo

    model = zoo()[name].model(name)
    target = get_target(describe_cpu())
    manifest, _ = extract_tasks(model, "cpu", target)
    return model, target, manifest


def _evaluate(row: Row) -> str | None:
    """Evaluate the build as a user would; return the reason if it is refused."""
    command = [sys.executable, "-m", "anole", "evaluate", str(_FOLDER), "--output", str(_EVALUATION)]
    result = subprocess.run([*command, "--rounds", _ROUNDS], capture_output=True, text=True, check=False)
    lines = result.stderr.strip().splitlines()
    if not _EVALUATION.exists():
        return shorten(lines[-1] if lines else f"anole evaluate ended with {result.returncode}")
    evaluation = read_evaluation(_EVALUATION)
    for name in ("relative_error", "variation_error"):
        row[name] = max((getattr(latency, name) or 0.0 for latency in evaluation.latencies), default=None)
    row["output_variation"] = min((latency.output_variation or 0.0 for latency in evaluation.latencies), default=None)
    row["redrawn_error"], row["exact_error"] = evaluation.redrawn_error, evaluation.exact_error
    row["right"] = int(result.returncode == 0)
    return shorten(lines[-1]) if result.returncode else None


def _compare(row: Row, rounds: int) -> None:
    """Compare the latency of the build with ONNX Runtime, which may not support the network."""
    from benchmarks.networks.compare import compare

    build_row, *other_rows = compare(_FOLDER, ["onnxruntime"], TurnSchedule(max_rounds=rounds), Path("absent.sqlite"))
    row["latency_ms"], row["rounds"] = float(build_row["latency_ms"]), build_row["rounds"]
    for baseline_row in other_rows:
        row["onnxruntime_ms"] = float(baseline_row["latency_ms"])
        row |= {name: float(baseline_row[name]) for name in ("speedup", "speedup_q1", "speedup_q3")}


def _profile() -> tuple[str, str]:
    """Return the kernels that take the most time, and the kernels below `_MAX_ROOF_SHARE` of the roof, as text."""
    command = [sys.executable, "-m", "anole", "profile", str(_FOLDER), "--json", "--seconds", "1"]
    profile = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rows = sorted(profile["rows"], key=lambda row: -row["share"])
    far = [row for row in rows if row["share"] > _MIN_TIME_SHARE and row["roofline"] < _MAX_ROOF_SHARE]
    return _describe(rows[:_N_SLOWEST]), _describe(far)


def _describe(rows: Iterable[Mapping[str, Any]]) -> str:
    """Format kernels with their share of the time, their share of the roof, and their layers."""
    return "; ".join(
        f"{row['kernel']} {row['share']:.0%} of the time, {row['roofline']:.0%} of the roof ({' '.join(row['layers'])})"
        for row in rows
    )


def find_undetected(build: Build, threads: int) -> list[str]:
    """Return the layers, among the first, middle and last, with 1 % of noise that the evaluation does not detect.

    The noise is added to the reference's weights instead of the build's, to avoid compiling again.
    """
    import torch

    from anole.evaluate.comparison import check_inputs, compare_outputs
    from anole.evaluate.correctness.check import MAX_RELATIVE_ERROR
    from anole.evaluate.engines import build_engine, torch_engine
    from anole.extract.torch import make_network

    torch.set_num_threads(threads)
    samples = check_inputs(build)
    network = make_network(build.model_spec)
    reference = torch_engine(network, tuple(map(torch.from_numpy, samples[0])))
    outputs = build_engine(_FOLDER, samples[0], "cpu", threads).compute_each(samples)
    layers, missed = layers_of(network, reference.run), []
    for layer in dict.fromkeys((layers[0], layers[len(layers) // 2], layers[-1])) if layers else ():
        weight = network.get_submodule(layer).weight.data
        original = weight.clone()
        weight *= 1 + _NOISE * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
        comparison = compare_outputs(outputs, reference.compute_each(samples))
        weight.copy_(original)
        if comparison.error <= MAX_RELATIVE_ERROR:
            missed.append(f"{layer}:{comparison.variation_error:.1e}")
    return missed


def layers_of(network: Any, run: Any) -> list[str]:
    """Return the convolutions and linear layers that a network runs, in order."""
    import torch

    names = []
    hooks = [
        layer.register_forward_hook(lambda *_, name=name: names.append(name))
        for name, layer in network.named_modules()
        if isinstance(layer, (torch.nn.modules.conv._ConvNd, torch.nn.Linear))
    ]
    run()
    for hook in hooks:
        hook.remove()
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    main()

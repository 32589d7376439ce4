"""Compares the threads of builds with TVM's thread pool on an idle machine, as CSV.

    python -m benchmarks.shared.pools builds/* > docs/results/data/pools.csv

Each network is compiled again with its build's configs, with its parallel loops left to TVM's pool. Two processes of
the same build may differ by 5 %, for where their memory lies. So there are several of both kinds, which take turns; the
n-th of one kind is compared with the n-th of the other in each round. A speedup is the median of the ratios of medians.
"""

from __future__ import annotations

import argparse
import csv
import logging
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from anole.compile.build import BuildSettings, compile_build
from anole.compile.recorded import recorded_manifest, recorded_receipts
from anole.documents.build import Build, read_build
from anole.errors import AnoleError
from anole.evaluate.comparison import draw_inputs
from anole.evaluate.engine_process import start_engines
from anole.evaluate.engines import Engine, build_engine
from anole.evaluate.interleave import Pace, take_turns
from anole.measure.site import site_of
from anole.targets.base import Device
from benchmarks.networks.compare import device_of, environment

COLUMNS = ("network", "threads", "own_ms", "tvm_ms", "speedup", "speedup_q1", "speedup_q3", "processes", "rounds")


def main() -> None:
    """Prints a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--processes", type=int, default=3, help="of each kind")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    for folder in arguments.builds:
        try:
            writer.writerow(compare(folder, arguments.processes, Pace(rounds=arguments.rounds)))
        except AnoleError as error:
            logging.warning("%s: was not timed: %s", folder, error)
        sys.stdout.flush()


def compare(folder: Path, n_processes: int, pace: Pace) -> dict[str, Any]:
    """Returns the row of a network.

    Raises:
        AnoleError: the build cannot run on this machine, or a process exits before its last turn.
    """
    build = read_build(folder)
    device = device_of(build)
    with tempfile.TemporaryDirectory() as scratch, site_of(device) as site, ExitStack() as running:
        other = Path(scratch, "tvm")
        compile_for_tvm_pool(build, device, other)
        with environment({**device.environment(), **site.environment()}):
            starts = {
                f"{kind} {number}": partial(start, made, build, device)
                for number in range(n_processes)
                for kind, made in (("own", folder), ("tvm", other))
            }
            engines = start_engines(starts, running, folder)
        with site.timing():
            times = take_turns({name: partial(each.burst, pace.burst_s) for name, each in engines.items()}, pace)
    medians = {
        kind: np.array([[np.median(turn) for turn in times[f"{kind} {number}"]] for number in range(n_processes)])
        for kind in ("own", "tvm")
    }
    slow, ratio, fast = np.quantile(medians["tvm"] / medians["own"], (0.25, 0.5, 0.75))
    return {
        **{"network": build.model, "threads": device.threads, "processes": n_processes},
        **{f"{kind}_ms": f"{1e3 * np.median(each):.4g}" for kind, each in medians.items()},
        **{"speedup": f"{ratio:.4g}", "speedup_q1": f"{slow:.4g}", "speedup_q3": f"{fast:.4g}"},
        "rounds": len(times["own 0"]),
    }


def start(folder: Path, build: Build, device: Device) -> Engine:
    """Returns an engine for a compiled network, on the inputs of its build."""
    return build_engine(folder, draw_inputs(build), device.runs_on, device.threads)


def compile_for_tvm_pool(build: Build, device: Device, folder: Path) -> None:
    """Compiles a build's network with its own configs, and leaves its parallel loops to TVM's thread pool."""
    settings = BuildSettings("tvm_pool", build.preset, build.trials, build.shared, build.seed)
    logging.disable(logging.WARNING)
    with mock.patch.object(type(device), "runtime_objects", lambda *_: ()):
        compile_build(build.model_spec, recorded_manifest(build), settings, recorded_receipts(build), folder)
    logging.disable(logging.NOTSET)


if __name__ == "__main__":
    main()

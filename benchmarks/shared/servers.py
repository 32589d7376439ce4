"""Measure the trials per second of one tuning run on one local server and on two, in alternation, as CSV.

    python -m benchmarks.shared.servers > docs/results/data/servers.csv

Each server is bound to its own core and runs kernels on one thread. A tracker lends both servers under one key; a turn
on one server has the limit `servers: 1`. Every turn tunes one layer from scratch, with the same random candidates,
built by as many processes as there are cores. Two kinds of devices are measured:
- `computes`: the kernel runs for up to `--seconds` per candidate. Servers and builders share the cores.
- `waits`: a pause before each repeat, as for a device that cools down, takes `--seconds` per candidate and no core, as
  if the devices were remote.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anole.errors import DeviceLostError
from anole.host.machine import available_cores
from anole.record import Status, Trial
from anole.search.evaluators.fixed import Fixed
from anole.search.presets import read_tuner
from anole.search.roles import Timer, Timing
from anole.search.settings import TunerSettings
from anole.store.content import read_shard
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.targets.rpc.address import Remote
from anole.targets.rpc.tracker import count_servers
from anole.task import Task
from anole.tune.options import TuneOptions
from anole.tune.stage import tune_task
from benchmarks.common.arguments import chosen, described
from benchmarks.common.rows import print_rows
from benchmarks.search.variants import LAYERS

HOST, KEY = "127.0.0.1", "local"
N_REPEATS = 10
COLUMNS = ("device", "pair", "servers", "trials", "failed", "seconds", "trials_per_s", "median_run_s", "median_build_s")


@dataclass(frozen=True)
class Pausing(Fixed):
    """A fixed evaluator with a pause before each timed repeat."""

    pause_s: float = 0.0

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        """Time one kernel."""

        def pause_and_time(number: int) -> float:
            time.sleep(self.pause_s)
            return timer(number)

        return super().evaluate(pause_and_time, best_s)


DEVICES: dict[str, Callable[[float], Fixed]] = {
    "computes": lambda seconds: Fixed(number=10_000, repeats=N_REPEATS, max_s=seconds),
    "waits": lambda seconds: Pausing(number=1, repeats=N_REPEATS, pause_s=seconds / (N_REPEATS + 1)),
}
"""For each kind of device, a function that returns its evaluator, given the seconds per candidate."""


def main() -> None:
    """Print a row for each turn, and the medians to standard error."""
    parser = described(__doc__)
    parser.add_argument("--devices", default="", help=f"comma-separated, from {', '.join(DEVICES)}; all by default")
    parser.add_argument("--pairs", type=int, default=5, help="number of pairs of turns, on one server and on two")
    parser.add_argument("--trials", type=int, default=16, help="trials per turn")
    parser.add_argument("--seconds", type=float, default=3.0, help="time that a candidate computes or waits")
    parser.add_argument("--layer", default="L8", choices=LAYERS)
    parser.add_argument("--port", type=int, default=9390, help="first port")
    print_rows(COLUMNS, turns(parser.parse_args()))


def turns(args: Any) -> Iterator[dict[str, object]]:
    """Yield the row of each turn; after each device, print the medians to standard error."""
    description = {**describe_cpu(threads=1), "model": "a server of this machine"}
    layer = LAYERS[args.layer]
    task = Task(layer, description, get_target(description).template_version(layer))
    with serving(args.port, sorted(os.sched_getaffinity(0))[:2]) as remote:
        for device in chosen(args.devices, DEVICES):
            evaluator = DEVICES[device](args.seconds)
            settings = replace(read_tuner({"preset": "random", "n_confirm": 1}), evaluator=evaluator)
            turn(task, settings, remote, 2)
            ratios = []
            for pair in range(args.pairs):
                rates = {}
                for servers in (1, 2) if pair % 2 == 0 else (2, 1):
                    trials = turn(task, settings, replace(remote, servers=servers), args.trials)
                    rates[servers] = len(trials) / trials[-1].elapsed_s
                    yield {"device": device, "pair": pair, "servers": servers, **statistics_of(trials)}
                ratios.append(rates[2] / rates[1])
            ratio = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}x to {max(ratios):.2f}x)"
            print(f"{device}: two servers measure {ratio} as many trials per second as one", file=sys.stderr)


def turn(task: Task, settings: TunerSettings, remote: Remote, n_trials: int) -> list[Trial]:
    """Tune a task from scratch and return its trials."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / f"{task.key}.json"
        path.write_text(json.dumps(task.to_json()))
        options = TuneOptions(settings, 0, n_trials, folder / "shards", remote, available_cores())
        tune_task(path, options, folder / "receipt.json")
        (shard,) = (folder / "shards").glob("*/*.jsonl")
        return list(read_shard(shard).trials)


def statistics_of(trials: list[Trial]) -> dict[str, object]:
    """Return the columns computed from the trials of a turn, which ends when the last trial is stored."""
    measurements, seconds = [trial.measurement for trial in trials], trials[-1].elapsed_s
    return {
        **{"trials": len(trials), "failed": sum(m.status is not Status.OK for m in measurements)},
        **{"seconds": f"{seconds:.2f}", "trials_per_s": f"{len(trials) / seconds:.3f}"},
        "median_run_s": f"{statistics.median(m.run_s for m in measurements):.3f}",
        "median_build_s": f"{statistics.median(m.build_s for m in measurements):.3f}",
    }


@contextmanager
def serving(port: int, cores: list[int]) -> Iterator[Remote]:
    """Run a tracker, and a server bound to each of the cores."""
    remote = Remote(HOST, port, KEY)
    commands = [["-m", "tvm.exec.rpc_tracker", "--host", HOST, "--port", f"{port}", "--port-end", f"{port + 1}"]]
    for number in range(len(cores)):
        server_port = f"{port + 10 * (number + 1)}"
        commands.append(
            ["-m", "anole", "serve", "--port", server_port, "--threads", "1", "--tracker", f"{HOST}:{port}"]
        )
        commands[-1] += ["--key", KEY]
    masks = [set(os.sched_getaffinity(0)), *({core} for core in cores)]
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda mask=mask: os.sched_setaffinity(0, mask),
        )
        for command, mask in zip(commands, masks, strict=True)
    ]
    try:
        n_servers = 0
        while n_servers < len(cores):
            time.sleep(0.5)
            with suppress(DeviceLostError):
                n_servers, _ = count_servers(remote)
        yield remote
    finally:
        for process in processes:
            os.killpg(process.pid, 9)
            process.wait()


if __name__ == "__main__":
    main()

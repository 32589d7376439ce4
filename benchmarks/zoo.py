"""Sweeps over many networks that nobody here chose for their speed, untuned: are they extracted, compiled, right, fast?

    python benchmarks/zoo.py docs/results/data/zoo.csv                     # all networks; goes on where it stopped
    python benchmarks/zoo.py try.csv --networks unet,timm_resnet --mutate  # some, with noise in single layers
    python benchmarks/zoo.py docs/results/data/zoo.csv --again             # those again that were refused

Each network has a process of its own with limits of time and memory, and a line in the file, which says how far it got.
The latency is compared with ONNX Runtime's in turns, each engine in a process of its own; see `networks.py`. With
`--mutate`, the weights of the first, the middle and the last layer of the reference get noise of 1 %, one after
another, and the evaluation must refuse the build each time.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

COLUMNS = (
    *("network", "source", "inputs", "extracted", "compiled", "right", "relative_error", "output_variation"),
    *("variation_error", "redrawn_error", "exact_error"),
    *("latency_ms", "onnxruntime_ms", "speedup", "speedup_q1", "speedup_q3"),
    *("rounds", "extract_s", "extract_cpu_s", "compile_s", "evaluate_s", "slowest", "uncaught", "stage", "reason"),
)
DONE = "done"
"""The stage of a network that went all the way."""

_POLL_S = 0.2
_WORDS = 300
"""The most characters of a reason."""

Row = dict[str, Any]


def main() -> None:
    """Adds a line to a file for each network that it lacks, or works on one network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the file of all results, which is continued")
    parser.add_argument("--networks", default="", help="comma-separated; a name's beginning stands for all such names")
    parser.add_argument("--seconds", type=float, default=900.0, help="limit of each network")
    parser.add_argument("--gigabytes", type=float, default=0.8 * psutil.virtual_memory().total / 1e9)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each engine; 0 for no times")
    parser.add_argument("--mutate", action="store_true", help="also check that noise in single layers is caught")
    parser.add_argument("--again", action="store_true", help="repeat the networks that did not go all the way")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if arguments.one:
        from zoo_steps import work_on

        work_on(arguments.one, arguments.file, arguments.rounds, arguments.mutate)
        return
    from zoo_networks import zoo

    networks = zoo()
    names = chosen(networks, arguments.networks)
    kept = [row for row in read(arguments.file) if not (arguments.again and row["stage"] != DONE)]
    write(arguments.file, kept)
    done = {row["network"] for row in kept}
    for name in names:
        if name in done:
            continue
        network = networks[name]
        inputs = " ".join(f"{each}={'x'.join(map(str, shape))}" for each, shape in network.inputs.items())
        row = {"network": name, "source": network.model(name).source.split("/")[-1], "inputs": inputs}
        options = ["--rounds", str(arguments.rounds), *(["--mutate"] if arguments.mutate else [])]
        row |= run_apart(name, options, arguments.seconds, arguments.gigabytes)
        append(arguments.file, row)
        speedup = row.get("speedup")
        outcome = row.get("reason") or (f"{speedup:.2f}x as fast as ONNX Runtime" if speedup else "not compared")
        print(f"{name}: {row['stage']}: {outcome}", flush=True)


def chosen(names: Iterable[str], wanted: str) -> list[str]:
    """Returns the names that begin with one of the comma-separated words; all, if there is no word.

    Raises:
        SystemExit: no name begins with one of the words.
    """
    known, words = list(names), tuple(word for word in wanted.split(",") if word)
    if unknown := [word for word in words if not any(name.startswith(word) for name in known)]:
        raise SystemExit(f"no network begins with {', '.join(unknown)}; see benchmarks/zoo_networks.py")
    return [name for name in known if not words or name.startswith(words)]


def read(path: Path) -> list[Row]:
    """Returns the whole lines of a file of results; one that an interruption cut short is left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as whole:
        whole.write(text[: text.rfind("\n") + 1])
        whole.seek(0)
        return [row for row in csv.DictReader(whole) if row.get("stage") and None not in row]


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replaces a file of results as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    beside.replace(path)


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Adds one line to a file of results, and sees it onto the disk."""
    plain = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(plain)
        file.flush()
        os.fsync(file.fileno())


def run_apart(name: str, options: Sequence[str], seconds: float, gigabytes: float) -> Row:
    """Works on a network in a process of its own, and returns what it reported until its end, or until a limit."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        command = [sys.executable, str(Path(__file__).resolve()), "report.json", "--one", name, *options]
        paths = [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}
        with Path(folder, "errors.txt").open("wb") as errors:
            ended = watch(command, Path(folder), environment, errors, seconds, gigabytes)
        report = Path(folder, "report.json")
        row: Row = json.loads(report.read_text()) if report.exists() else {"stage": "start"}
        if row["stage"] != DONE and not row.get("reason"):
            lines = Path(folder, "errors.txt").read_text(errors="replace").strip().splitlines()
            row["reason"] = shown(ended or (lines[-1] if lines else "it ended without a reason"))
        return row


def watch(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], errors: Any, seconds: float, gigabytes: float
) -> str | None:
    """Runs a command with all processes that it starts until it ends; returns which limit ended it, or its signal."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=errors, stderr=errors, start_new_session=True
    )
    began_s, reason = time.monotonic(), None
    try:
        while process.poll() is None and reason is None:
            time.sleep(_POLL_S)
            if time.monotonic() - began_s > seconds:
                reason = f"it took more than {seconds:g} s"
            elif memory_bytes(process.pid) > gigabytes * 1e9:
                reason = f"it took more than {gigabytes:.3g} GB of memory"
    finally:
        # Its processes are in one group, and some of them may be left.
        for each in descendants(process.pid):
            _kill(each.pid, os.kill)
        _kill(process.pid, os.killpg)
        process.wait()
    if reason is None and process.returncode < 0:
        return f"it was ended by {signal.Signals(-process.returncode).name}"
    return reason


def memory_bytes(pid: int) -> int:
    """Returns the memory that a process and its descendants have together."""
    total = 0
    for process in descendants(pid):
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def descendants(pid: int) -> list[psutil.Process]:
    """Returns a process and all that it started and that still run; none if it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _kill(pid: int, end: Any) -> None:
    try:
        end(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def shown(reason: str) -> str:
    """Returns a reason on one line, and not longer than a line may be."""
    line = " ".join(reason.split())
    return line if len(line) <= _WORDS else line[: _WORDS - 3] + "..."


if __name__ == "__main__":
    main()

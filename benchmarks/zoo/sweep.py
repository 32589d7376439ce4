"""Extract, compile, evaluate and time the untuned networks of the zoo, which were not selected for speed.

    python -m benchmarks.zoo.sweep docs/results/data/zoo.csv                    # all networks; resumes where it stopped
    python -m benchmarks.zoo.sweep try.csv --networks unet,timm_resnet --mutate # some, with noise in single layers
    python -m benchmarks.zoo.sweep docs/results/data/zoo.csv --again            # repeat incomplete networks
    python -m benchmarks.zoo.sweep docs/results/data/zoo.csv --codes 1a2b3c     # repeat networks of other code

Each network has its own process with limits on time and memory, and a row in the file with the last stage that it
reached. The latency is compared with ONNX Runtime by networks/compare.py. With `--mutate`, 1 % of noise is added to the
weights of the first, middle or last layer of the reference. In each of these cases, the evaluation must refuse the
build.
"""

from __future__ import annotations

import csv
import io
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import round_row
from benchmarks.zoo.jobs import COLUMNS, DONE, Limits, Row, run_job
from benchmarks.zoo.networks import Network, zoo


def main() -> None:
    """Append a row to a file for each network that is not in it, and replace the rows to repeat."""
    parser = make_parser(__doc__)
    parser.add_argument("file", type=Path, help="file of the results; a later call resumes")
    parser.add_argument("--networks", default="", help="comma-separated names, or prefixes of names")
    parser.add_argument("--seconds", type=float, default=900.0, help="time limit per network")
    parser.add_argument("--gigabytes", type=float, help="memory limit per network; 80 %% of the memory by default")
    parser.add_argument("--rounds", type=int, default=15, help="turns per engine; 0 to skip timing")
    parser.add_argument("--mutate", action="store_true", help="also check that noise in single layers is caught")
    parser.add_argument("--again", action="store_true", help="repeat the networks that did not complete all stages")
    parser.add_argument("--codes", default="", help="comma-separated; repeat networks whose code is none of these")
    args = parser.parse_args()
    # A signal must also end the running job.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    networks, codes = zoo(), args.codes.split(",") if args.codes else None
    rows = {row["network"]: row for row in read(args.file)}
    kept = {name for name, row in rows.items() if not ((args.again and row["stage"] != DONE) or is_stale(row, codes))}
    limits = Limits(args.seconds, args.gigabytes or 0.8 * psutil.virtual_memory().total / 1e9)
    options = ["--rounds", str(args.rounds), *(["--mutate"] if args.mutate else [])]
    # Networks that were never tried are first.
    for name in sorted(choose_networks(networks, args.networks), key=rows.__contains__):
        if name not in kept:
            report = run_job([sys.executable, "-m", "benchmarks.zoo.steps", name, *options], limits)
            row = rows[name] = round_row({**_description(name, networks[name]), "code": _code_hash(), **report})
            write(args.file, list(rows.values()))
            speedup = row.get("speedup")
            outcome = row.get("reason") or (
                f"{float(speedup):.2f}x as fast as ONNX Runtime" if speedup else "not compared"
            )
            print(f"{name}: {row['stage']}: {outcome}", flush=True)


def is_stale(row: Row, codes: Sequence[str] | None) -> bool:
    """Whether the code of a row is none of the given ones; False without given codes."""
    return codes is not None and row.get("code") not in codes


def _code_hash() -> str:
    """Return the abbreviated git tree hash of the library's folder, which identifies the state of its code."""
    command = ["git", "rev-parse", "--short=8", "HEAD:lib"]
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def _description(name: str, network: Network) -> Row:
    inputs = " ".join(f"{key}={'x'.join(map(str, shape))}" for key, shape in network.inputs.items())
    return {"network": name, "source": network.model(name).source.split("/")[-1], "inputs": inputs}


def choose_networks(names: Iterable[str], text: str) -> list[str]:
    """Return the names that begin with one of the comma-separated prefixes; without prefixes, all.

    Raises:
        SystemExit: no name begins with one of the prefixes.
    """
    names, prefixes = list(names), tuple(prefix for prefix in text.split(",") if prefix)
    if unknown := [prefix for prefix in prefixes if not any(name.startswith(prefix) for name in names)]:
        raise SystemExit(f"no network begins with {', '.join(unknown)}; see benchmarks/zoo/networks.py")
    return [name for name in names if not prefixes or name.startswith(prefixes)]


def read(path: Path) -> list[Row]:
    """Return the rows of a file of results, without a last line that was cut off by an interruption."""
    if not path.exists():
        return []
    complete = path.read_bytes().rpartition(b"\n")[0].decode()
    return [row for row in csv.DictReader(io.StringIO(complete, newline="")) if row.get("stage") and None not in row]


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a file of results atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(path)


if __name__ == "__main__":
    main()

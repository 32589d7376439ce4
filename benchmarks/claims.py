"""Settles the claims of the five papers: makes docs/results/claims.md from the files of `benchmarks/bench_search.py`.

    python benchmarks/claims.py > docs/results/claims.md

A claim holds if the whole 95 % interval lies on its side, and does not hold if the whole interval lies on the other;
otherwise it cannot be told. Whether the effect is as large as the paper's is another question: both numbers are given.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench_search import FOLDER
from experiment import read_rows
from intervals import Estimate, Rows
from paper_claims import CLAIMS, Claim, Data
from search_accelerator import network_rows
from search_report import sections


def main() -> None:
    """Prints the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the files")
    folder = parser.parse_args().folder
    sys.stdout.write(page(read_data(folder)))


def read_data(folder: Path) -> Data:
    """Reads the files of all experiments."""
    data: dict[str, Rows] = {}
    for path in sorted(folder.glob("*.csv")):
        data[path.stem] = rows = read_rows(path)
        for space in {row.get("space", "") for row in rows} - {""}:
            data[f"{path.stem}/{space}"] = [row for row in rows if row["space"] == space]
    data["accelerator/networks"] = network_rows(data.get("accelerator", ()))
    return data


def page(data: Data) -> str:
    """Returns the page of all claims."""
    found = [(claim, claim.estimate(data)) for claim in CLAIMS]
    told = [(claim, estimate) for claim, estimate in found if estimate is not None]
    verdicts = [estimate.verdict(claim.claimed_above) for claim, estimate in told]
    said = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told"}
    counts = ", ".join(f"{verdicts.count(each)} {plural}" for each, plural in said.items())
    lines = [_row(claim, estimate) for claim, estimate in told]
    missing = [f"- {claim.paper}, {claim.where}: {claim.claim}" for claim, estimate in found if estimate is None]
    rest = ["", "Not measured yet:", "", *missing] if missing else []
    return "\n".join([_HEAD.format(counts=counts, n=len(told)), *lines, *rest, *sections(data)]) + "\n"


_HEAD = """# The papers' claims

Of {n} claims that were measured here: {counts}. Fewer than three layers or five pairs settle nothing.
`make bench-search` adds runs, from which `benchmarks/claims.py` makes this page: on exact tables
([searches](data/search/tables.csv), [clusters](data/search/clusters.csv), [all layers of
networks](data/search/accelerator.csv)) and on whole networks ([seconds](data/search/networks_tuned.csv),
[latencies](data/search/networks_timed.csv)).

| paper | where | claim | theirs | here (95 % interval, pairs) | setting | verdict |
|---|---|---|---|---|---|---|"""


def _row(claim: Claim, estimate: Estimate) -> str:
    value, low, high = (claim.shown.format(each) for each in (estimate.value, estimate.low, estimate.high))
    here = f"{value} ({low} to {high}, n = {estimate.n})"
    cells = (claim.paper, claim.where, claim.claim, claim.theirs, here, claim.setting)
    return "| " + " | ".join((*cells, estimate.verdict(claim.claimed_above))) + " |"


if __name__ == "__main__":
    main()

"""Settles the claims of the five papers: makes docs/results/claims.md from the files of `benchmarks/bench_search.py`.

    python benchmarks/claims.py > docs/results/claims.md

A claim holds if the whole 95 % interval lies on its side, and does not hold if the whole interval lies on the other;
otherwise it cannot be told. Whether the effect is as large as the paper's is another question: both numbers are given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bench_search import FOLDER
from experiment import read_rows
from intervals import Estimate, Rows, mean, ratio

Data = Mapping[str, Rows]
"""The lines of each experiment by its name, and those in one kind of space by both names: ``tables/open``."""


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what is found here.

    Attributes:
        paper, where: the paper, and its figure or table.
        claim: what it says.
        theirs: its number.
        setting: where the claim is tested here.
        estimate: computes the number here from the files; None where there are no lines yet.
        claimed_above: the claim holds if the number is above this one.
        shown: how a number is written.
    """

    paper: str
    where: str
    claim: str
    theirs: str
    setting: str
    estimate: Callable[[Data], Estimate | None]
    claimed_above: float = 1.0
    shown: str = "{:.2f}x"


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
    return data


def page(data: Data) -> str:
    """Returns the page of all claims."""
    found = [(claim, claim.estimate(data)) for claim in CLAIMS]
    told = [(claim, estimate) for claim, estimate in found if estimate is not None]
    verdicts = [estimate.verdict(claim.claimed_above) for claim, estimate in told]
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in ("holds", "does not hold", "cannot be told"))
    lines = [_row(claim, estimate) for claim, estimate in told]
    missing = [f"- {claim.paper}, {claim.where}: {claim.claim}" for claim, estimate in found if estimate is None]
    rest = ["", "Not measured yet:", "", *missing] if missing else []
    return "\n".join([_HEAD.format(counts=counts, n=len(told)), *lines, *rest]) + "\n"


_HEAD = """# The papers' claims

Of {n} claims that were tested here: {counts}. Made by `python benchmarks/claims.py` from the files of
[data/search](data/search), which `make bench-search` continues.

| paper | where | claim | theirs | here (95 % interval, pairs) | setting | verdict |
|---|---|---|---|---|---|---|"""


def _row(claim: Claim, estimate: Estimate) -> str:
    value, low, high = (claim.shown.format(each) for each in (estimate.value, estimate.low, estimate.high))
    here = f"{value} ({low} to {high}, n = {estimate.n})"
    cells = (claim.paper, claim.where, claim.claim, claim.theirs, here, claim.setting)
    return "| " + " | ".join((*cells, estimate.verdict(claim.claimed_above))) + " |"


def _ratio(experiment: str, over: str, under: str, column: str) -> Callable[[Data], Estimate | None]:
    """Returns what computes a figure of one variant over another's."""
    return lambda data: ratio(data.get(experiment, ()), over, under, column)


def _better(experiment: str, one: str, other: str, column: str) -> Callable[[Data], Estimate | None]:
    """Returns what computes how many times the speed of one variant's config is that of another's, from their gaps."""
    return lambda data: ratio(data.get(experiment, ()), other, one, lambda row: 1 + float(row[column] or "nan"))


def _batch_share(variant: str, size: int, data: Data) -> Estimate | None:
    """Returns the share of a variant's batches that have a size, by run; the last batch of a run does not count."""
    shares = {}
    for row in data.get("tables/constrained", ()):
        batches = row["batches"].split()[:-1]
        if row["variant"] == variant and batches:
            shares[row["layer"], row["seed"]] = float(np.mean([int(each) == size for each in batches]))
    return mean(shares)


_TABLES = "whole spaces of the accelerator, exact"

_LIVE = "four layers on this processor, open spaces, 256 trials"
_NETWORKS = "whole networks on this processor, open spaces, at most 1000 trials a task"

CLAIMS: Sequence[Claim] = (
    Claim(
        *(
            "Chameleon",
            "Fig. 5",
            "candidates are clustered: they lie closer around 16 centroids than random configs",
        ),
        *("drawn", "512 best candidates of annealing, " + _TABLES),
        lambda data: _by_seed(data, "clusters", "SA+AS", lambda row: float(row["loss_ratio"])),
    ),
    Claim(
        *("Chameleon", "Fig. 6", "those of a cluster are alike: within 25 % of its centroid's speed, beside another's"),
        *("drawn", "512 best candidates of annealing, " + _TABLES),
        lambda data: _by_seed(data, "clusters", "SA+AS", _alike),
    ),
    Claim(
        *("RELEASE, Chameleon", "Fig. 5, 7a", "PPO converges in fewer steps than annealing", "2.88x fewer", _TABLES),
        _ratio("tables/constrained", "SA+greedy", "PPO+greedy", "converged_at"),
    ),
    Claim(
        *("RELEASE, Chameleon", "Fig. 6, 7b", "adaptive sampling measures less in 16 iterations, with annealing"),
        *("1.98x fewer", _TABLES),
        _ratio("tables/constrained", "SA+greedy", "SA+AS", "trials"),
    ),
    Claim(
        *("RELEASE, Chameleon", "Fig. 6, 7b", "the same with PPO", "2.33x fewer", _TABLES),
        _ratio("tables/constrained", "PPO+greedy", "chameleon", "trials"),
    ),
    Claim(
        *("Chameleon", "Fig. 7b", "and finds code that is as fast or faster in these iterations", "as fast", _TABLES),
        _better("tables/constrained", "chameleon", "PPO+greedy", "gap_at_end"),
    ),
    Claim(
        *("Chameleon", "Fig. 8a", "adaptive sampling finds faster code than AutoTVM's diversity, with annealing"),
        *("1.135x", _TABLES + ", 256 trials"),
        _better("tables/constrained", "SA+AS", "autotvm", "gap_at_256"),
    ),
    Claim(
        *("Chameleon", "Fig. 8b", "the same with PPO", "1.19x", _TABLES + ", 256 trials"),
        _better("tables/constrained", "chameleon", "PPO+diverse", "gap_at_256"),
    ),
    Claim(
        *("AdaTune", "Fig. 10", "expected improvement with contextual annealing needs fewer trials"),
        *("not stated", _TABLES + ", trials to within 1 %"),
        _ratio("tables/constrained", "XGB+SA batch 32", "adatune", "trials_to_1%"),
    ),
    Claim(
        *("AdaTune", "Fig. 12", "a random forest finds faster code than a Gaussian process", "much better"),
        _TABLES + ", 256 trials",
        _better("tables/constrained", "adatune", "GP+CSA", "gap_at_256"),
    ),
    Claim(
        *("DCOC", "Fig. 4, Table 5", "faster code than AutoTVM's", "1.17x", _TABLES + ", 16 iterations each"),
        _better("tables/constrained", "dcoc", "autotvm", "gap_at_end"),
    ),
    Claim(
        *("DCOC", "Fig. 4, Table 5", "faster code than Chameleon's", "1.11x", _TABLES + ", 16 iterations each"),
        _better("tables/constrained", "dcoc", "chameleon", "gap_at_end"),
    ),
    Claim(
        *("DCOC", "Fig. 6", "the same peak with fewer trials than AutoTVM", "fewer", _TABLES + ", to within 1 %"),
        _ratio("tables/constrained", "autotvm", "dcoc", "trials_to_1%"),
    ),
    Claim(
        *("DCOC", "Fig. 3", "confidence sampling finds faster code than greedy sampling", "not stated"),
        _TABLES + ", 256 trials",
        _better("tables/constrained", "dcoc", "MAPPO+greedy", "gap_at_256"),
    ),
    Claim(
        *("Chameleon", "Algorithm 1", "the number of clusters adapts: batches that are not of the most frequent size"),
        *("8 to 63", _TABLES),
        lambda data: _adapted(data),
        claimed_above=0.5,
        shown="{:.2f}",
    ),
    Claim(
        *("Chameleon, DCOC", "sections 1, 2", "fewer invalid configs are measured than with AutoTVM", "fewer"),
        "open spaces of the accelerator, exact, share of failures",
        lambda data: ratio(data.get("tables/open", ()), "SA+greedy", "chameleon", _failed),
    ),
    Claim(
        *("Chameleon", "Fig. 10a", "layers take less time than with AutoTVM", "4.82x", _LIVE),
        _ratio("layers/open", "SA+greedy", "PPO+AS", "seconds"),
    ),
    Claim(
        *("Chameleon", "Fig. 10a", "and their code is faster", "1.17x", _LIVE),
        _ratio("layers/open", "SA+greedy", "PPO+AS", "ratio_at_256"),
    ),
    Claim(
        *("AdaTune", "Fig. 6, 11", "the adaptive evaluator takes less time than 500 runs", "1.3x to 3.9x", _LIVE),
        _ratio("layers/open", "RFEI+CSA+DE", "adatune", "seconds"),
    ),
    Claim(
        *("AdaTune", "Fig. 6, 11", "less time than AutoTVM's own evaluator", "not compared", _LIVE),
        _ratio("layers/open", "SA+greedy", "adatune", "seconds"),
    ),
    Claim(
        *("AdaTune", "Fig. 6", "faster code than the baseline's", "up to 2.15x", _LIVE),
        _ratio("layers/open", "XGB+SA+DE", "adatune", "ratio_at_256"),
    ),
    Claim(
        *("Chameleon", "Table 2", "networks take less time than with AutoTVM", "4.45x", _NETWORKS),
        lambda data: ratio(data.get("networks_tuned", ()), "autotvm", "chameleon", "seconds", **_BY_NETWORK),
    ),
    Claim(
        *("Chameleon", "Table 3", "and are faster", "up to 1.064x", _NETWORKS),
        lambda data: _faster(data, "chameleon", "autotvm"),
    ),
    Claim(
        *("AdaTune", "Tables 2, 3", "networks take less time than with AutoTVM", "1.3x to 2.9x", _NETWORKS),
        lambda data: ratio(data.get("networks_tuned", ()), "autotvm", "adatune", "seconds", **_BY_NETWORK),
    ),
    Claim(
        *("AdaTune", "Tables 4, 5", "and are as fast or faster", "up to 1.046x", _NETWORKS),
        lambda data: _faster(data, "adatune", "autotvm"),
        claimed_above=0.98,
    ),
)
"""Every claim that is tested."""

_BY_NETWORK = {"variant": "tuner", "place": "network"}


def _faster(data: Data, one: str, other: str) -> Estimate | None:
    """Returns how many times as fast the networks of one tuner are as those of another."""
    return ratio(data.get("networks_timed", ()), other, one, "latency_ms", variant="engine", place="network")


def _failed(row: Mapping[str, str]) -> float:
    """Returns the share of a run's trials that failed; one failure at least, so that ratios exist."""
    return max(1, int(row["failed"])) / int(row["trials"])


def _alike(row: Mapping[str, str]) -> float:
    """Returns how many times as often configs are alike within a cluster as across clusters."""
    return max(1e-3, float(row["near_own"])) / max(1e-3, float(row["near_other"]))


def _by_seed(data: Data, name: str, variant: str, figure: Callable[[Mapping[str, str]], float]) -> Estimate | None:
    """Returns the geometric mean of a figure of one variant's runs."""
    rows = [row for row in data.get(name, ()) if row["variant"] == variant]
    return mean({(row["layer"], row["seed"]): float(np.log(figure(row))) for row in rows}, np.exp)


def _adapted(data: Data) -> Estimate | None:
    estimate = partial(_batch_share, "chameleon", 16)(data)
    if estimate is None:
        return None
    return Estimate(1 - estimate.value, 1 - estimate.high, 1 - estimate.low, estimate.n, estimate.places)


if __name__ == "__main__":
    main()

"""The claims of the five papers that can be tested here, and how each number follows from the experiments' files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from benchmarks.common.rows import Row
from benchmarks.search.evidence import Figure, Logs, Rows, log_ratios

Data = Mapping[str, Rows]
"""The lines of each experiment by its name, and those in one kind of space by both names: ``tables/open``."""


Compute = Callable[[Data], Logs]
"""Computes a number's logarithms from all lines; nothing where those that it needs are missing."""


class Kind(Enum):
    """What a claim is about."""

    GAIN = "what a method gains"
    PREMISE = "a premise of a method"
    CONSTANT = "a number that follows from the settings, and cannot be otherwise"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what is found here.

    Attributes:
        paper, where: the paper, and its figure or table.
        claim: what it says.
        theirs: its number.
        setting: where the claim is tested here.
        compute: computes the number here.
        claimed_above: the claim holds if the number is above this one.
        kind: what it is about.
        flaw: why the number settles nothing, whatever it is.
    """

    paper: str
    where: str
    claim: str
    theirs: str
    setting: str
    compute: Compute
    claimed_above: float = 1.0
    kind: Kind = Kind.GAIN
    flaw: str = ""


def _ratio(experiment: str, over: str, under: str, column: str | Figure) -> Compute:
    """Returns what computes a figure of one variant over another's."""
    return lambda data: log_ratios(data.get(experiment, ()), over, under, column)


def _better(experiment: str, one: str, other: str, column: str) -> Compute:
    """Returns what computes how many times the speed of one variant's config is that of another's, from their gaps."""
    return _ratio(experiment, other, one, lambda row: 1 + float(row[column] or "nan"))


def _mean_of(experiment: str, variant: str, figure: Figure) -> Compute:
    """Returns what computes a figure of a variant's runs."""

    def compute(data: Data) -> Logs:
        rows = [row for row in data.get(experiment, ()) if row["variant"] == variant]
        return {(row["layer"], row["seed"]): float(np.log(figure(row))) for row in rows}

    return compute


def _accelerated(one: str, other: str) -> Compute:
    """Returns what computes how many times as fast the accelerator runs networks by one tuner as by another.

    Networks of a family (`vgg11`, `vgg16`) share layers, and so are one place.
    """

    def compute(data: Data) -> Logs:
        found = log_ratios(data.get("accelerator/networks", ()), other, one, "latency_s", place="network")
        return {(name.rstrip("0123456789"), f"{name} {seed}"): value for (name, seed), value in found.items()}

    return compute


def _sooner(one: str, other: str) -> Compute:
    """Returns what computes how many times as soon the networks of one tuner are ready as those of another."""
    return lambda data: log_ratios(
        data.get("networks_tuned", ()), other, one, "seconds", variant="tuner", place="network"
    )


def _faster(one: str, other: str) -> Compute:
    """Returns what computes how many times as fast the networks of one tuner are as those of another."""
    return lambda data: log_ratios(
        data.get("networks_timed", ()), other, one, "latency_ms", variant="engine", place="network"
    )


def _of_16(row: Row) -> float:
    """Returns the share of a run's batches that are of 16; its last one does not count."""
    return max(1e-3, float(np.mean([int(each) == 16 for each in row["batches"].split()[:-1]])))


def _trials_to_1(row: Row) -> float:
    """Returns the trials after which a run is within 1 % of the optimum; all of them where it never is."""
    return float(row["trials_to_1%"] or row["trials"])


def _failed(row: Row) -> float:
    """Returns the share of a run's trials that failed; one failure at least, so that ratios exist."""
    return max(1, int(row["failed"])) / int(row["trials"])


def _alike(row: Row) -> float:
    """Returns how many times as often configs are alike within a cluster as across clusters."""
    return max(1e-3, float(row["near_own"])) / max(1e-3, float(row["near_other"]))


_TABLES = "exact"

_ACCELERATOR = "exact, seven networks with one block each, 128 trials a layer"

_LIVE = "four layers on this processor, open spaces, 256 trials"
_NETWORKS = "whole networks, CPU, open spaces, at most 1000 trials a task"

CLAIMS: Sequence[Claim] = (
    Claim(
        *(
            "Chameleon",
            "Fig. 5",
            "candidates are clustered: they lie closer around 16 centroids than random configs",
        ),
        *("drawn", _TABLES + ", 512 best candidates of annealing"),
        _mean_of("clusters", "SA+AS", lambda row: float(row["loss_ratio"])),
        kind=Kind.PREMISE,
    ),
    Claim(
        *(
            "Chameleon",
            "Fig. 6",
            "a cluster's configs are alike: within 25 % of its centroid's speed, beside another's",
        ),
        *("drawn", _TABLES + ", 512 best candidates of annealing"),
        _mean_of("clusters", "SA+AS", _alike),
        kind=Kind.PREMISE,
    ),
    Claim(
        *("RELEASE, Chameleon", "Fig. 5, 7a", "PPO converges in fewer steps than annealing", "2.88x fewer", _TABLES),
        _ratio("tables/constrained", "SA+greedy", "PPO+greedy", lambda row: 1 + float(row["converged_at"] or "nan")),
        flaw="artefact: annealing starts where its last search ended, where it has converged",
    ),
    Claim(
        *("RELEASE, Chameleon", "Fig. 6, 7b", "adaptive sampling measures less in 16 iterations, with annealing"),
        *("1.98x fewer", _TABLES),
        _ratio("tables/constrained", "SA+greedy", "SA+AS", "trials"),
        kind=Kind.CONSTANT,
        flaw="constant: 16 of 64 in every iteration",
    ),
    Claim(
        *("RELEASE, Chameleon", "Fig. 6, 7b", "the same with PPO", "2.33x fewer", _TABLES),
        _ratio("tables/constrained", "PPO+greedy", "chameleon", "trials"),
        kind=Kind.CONSTANT,
        flaw="constant: likewise",
    ),
    Claim(
        *(
            "Chameleon",
            "Fig. 7b",
            "and finds code that is as fast, within 2 %, in these iterations",
            "as fast",
            _TABLES,
        ),
        _better("tables/constrained", "chameleon", "PPO+greedy", "gap_at_end"),
        claimed_above=0.98,
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
        _ratio("tables/constrained", "XGB+SA batch 32", "adatune", _trials_to_1),
    ),
    Claim(
        *("AdaTune", "Fig. 12", "a random forest finds faster code than a Gaussian process", "much better"),
        _TABLES + ", 256 trials",
        _better("tables/constrained", "adatune", "GP+CSA", "gap_at_256"),
    ),
    Claim(
        *("DCOC", "Table 5", "the accelerator runs networks faster than with AutoTVM", "1.00x to 1.38x", _ACCELERATOR),
        _accelerated("dcoc", "autotvm"),
    ),
    Claim(
        *("DCOC", "Table 5", "and faster than with Chameleon", "1.00x to 1.40x", _ACCELERATOR),
        _accelerated("dcoc", "chameleon"),
    ),
    Claim(
        *("DCOC", "Fig. 4", "faster code than AutoTVM's", "1.17x"),
        _TABLES + ", 16 iterations each: 256 trials beside 1024",
        _better("tables/constrained", "dcoc", "autotvm", "gap_at_end"),
    ),
    Claim(
        *("DCOC", "Fig. 4", "faster code than Chameleon's", "1.11x", _TABLES + ", 16 iterations each"),
        _better("tables/constrained", "dcoc", "chameleon", "gap_at_end"),
    ),
    Claim(
        *("DCOC", "Fig. 6", "the same peak with fewer trials than AutoTVM", "fewer", _TABLES + ", to within 1 %"),
        _ratio("tables/constrained", "autotvm", "dcoc", _trials_to_1),
    ),
    Claim(
        *("DCOC", "Fig. 3", "confidence sampling finds faster code than greedy sampling", "not stated"),
        _TABLES + ", 256 trials",
        _better("tables/constrained", "dcoc", "MAPPO+greedy", "gap_at_256"),
    ),
    Claim(
        *("Chameleon", "Algorithm 1", "the number of clusters adapts: share of batches of exactly 16"),
        *("8 to 63 clusters", _TABLES),
        _mean_of("tables/constrained", "chameleon", _of_16),
        kind=Kind.CONSTANT,
        flaw="constant: 16 in every batch of Anole's form, which clusters all knobs",
    ),
    Claim(
        *("Chameleon, DCOC", "sections 1, 2", "fewer invalid configs are measured than with AutoTVM", "fewer"),
        "open spaces, exact, share of failures",
        _ratio("tables/open", "SA+greedy", "chameleon", _failed),
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
        _sooner("chameleon", "autotvm"),
    ),
    Claim(
        *("Chameleon", "Table 3", "and are faster", "up to 1.064x", _NETWORKS),
        _faster("chameleon", "autotvm"),
    ),
    Claim(
        *("AdaTune", "Tables 2, 3", "networks take less time than with AutoTVM", "1.3x to 2.9x", _NETWORKS),
        _sooner("adatune", "autotvm"),
    ),
    Claim(
        *("AdaTune", "Tables 4, 5", "and are as fast, within 2 %, or faster", "up to 1.046x", _NETWORKS),
        _faster("adatune", "autotvm"),
        claimed_above=0.98,
    ),
)
"""Every claim that is tested."""

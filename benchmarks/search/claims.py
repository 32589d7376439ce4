"""Test the claims of the five papers: write docs/results/claims.md from the files of `run.py`.

    python -m benchmarks.search.claims > docs/results/claims.md

``benchmarks/tables/claims.csv`` has the claims that can be tested here. Each is about a number: the ratio of a figure
of the variants ``over`` and ``under``, or the figure itself. docs/results/protocol.md defines the verdicts: holds, does
not hold, equivalent, undecided. They do not say whether the effect is as large as in the paper: both numbers are given.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from benchmarks.common.arguments import described
from benchmarks.common.rows import Row, line, read_rows
from benchmarks.search.evidence import ALPHA, Effect, Figure, Logs, Rows, effect, holm, log_ratios
from benchmarks.search.report import Data, cost_at, sections
from benchmarks.search.run import FOLDER


class Kind(Enum):
    """The subject of a claim."""

    GAIN = "what a method gains"
    PREMISE = "a premise of a method"
    CONSTANT = "a number that follows from the settings, and cannot be otherwise"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and how it is tested here.

    Attributes:
        where: the figure or table in the paper.
        theirs: the paper's number.
        setting: where the claim is tested here.
        experiment: the experiment whose rows the number is computed from.
        over, under: the variants with the compared figures; without `under`, the figures of `over` are averaged.
        figure: a column, or one of `FIGURES`.
        claimed_above: the claim holds if the number is above this one.
        flaw: why the number cannot decide the claim.
    """

    paper: str
    where: str
    claim: str
    theirs: str
    setting: str
    experiment: str
    over: str
    under: str
    figure: str
    claimed_above: float
    kind: Kind
    flaw: str

    def number(self, data: Data) -> Logs:
        """Return the number's logarithms from all rows; empty if rows are missing."""
        rows, figure = data.get(self.experiment, ()), FIGURES.get(self.figure, self.figure)
        if not self.under:
            assert callable(figure)
            own = [row for row in rows if row["variant"] == self.over]
            return {(row["layer"], row["seed"]): float(np.log(figure(row))) for row in own}
        variant, block = _COLUMNS.get(self.experiment, ("variant", "layer"))
        found = log_ratios(rows, self.over, self.under, figure, variant=variant, block=block)
        if self.experiment != "accelerator":
            return found
        # Networks of a family (`vgg11`, `vgg16`) share layers, so they are one unit of replication.
        return {(name.rstrip("0123456789"), f"{name} {seed}"): value for (name, seed), value in found.items()}

    def at_optimum(self, data: Data) -> tuple[float, float] | None:
        """Return the shares of both variants' runs that reach the optimum; None if the claim is not about cost."""
        if not self.figure.startswith("cost"):
            return None
        figure, rows = FIGURES[self.figure], data.get(self.experiment, ())
        costs = [[figure(row) for row in rows if row["variant"] == each] for each in (self.over, self.under)]
        over, under = (float(np.mean([cost <= 1 for cost in each] or [False])) for each in costs)
        return over, under


def _similarity(row: Row) -> float:
    """Return the ratio of how often configs are similar within a cluster and across clusters."""
    return max(1e-3, float(row["near_own"])) / max(1e-3, float(row["near_other"]))


def _batch(row: Row) -> float:
    """Return the mean size of a run's batches."""
    return float(np.mean(_whole_batches(row)))


def _not_of_16(row: Row) -> float:
    """Return the share of a run's batches whose size is not 16."""
    return max(1e-3, float(np.mean([each != 16 for each in _whole_batches(row)])))


def _whole_batches(row: Row) -> list[int]:
    """Return the sizes of a run's batches without the last one, unless it is the only one."""
    sizes = list(map(int, row["batches"].split()))
    return sizes[:-1] or sizes


FIGURES: Mapping[str, Figure] = {
    "how much closer": lambda row: float(row["loss_ratio"]),
    "similarity": _similarity,
    "batches not of 16": _not_of_16,
    "steps to the score": lambda row: 1 + float(row["steps"]),
    "batch": _batch,
    "cost at 256": cost_at("gap_at_256"),
    "cost at the end": cost_at("gap_at_end"),
    # In milliseconds: the default config's latency differs between processes.
    "latency at the end": lambda row: float(row["ratio_at_end"] or "nan") * float(row["default_ms"] or "nan"),
    # All trials if a run never comes within 1 %.
    "trials to 1 %": lambda row: float(row["trials_to_1%"] or row["trials"]),
    # At least one failure, so ratios exist; the first trials of a search fail most often.
    "failures of 128": lambda row: max(1.0, float(row["failed_at_128"] or "nan")) / min(128, int(row["trials"])),
}
"""Figures that are computed from several columns, or from columns that may be empty."""

_COLUMNS = {
    "accelerator": ("variant", "network"),
    "networks_tuned": ("tuner", "network"),
    "networks_timed": ("engine", "network"),
    "evaluators": ("evaluator", "layer"),
}
"""The columns of variants and units of replication of experiments that differ from the others."""

CLAIMS: Sequence[Claim] = tuple(
    Claim(**{**row, "claimed_above": float(row["claimed_above"]), "kind": Kind[row["kind"].upper()]})
    for row in read_rows(Path(__file__).parents[1] / "tables/claims.csv")
)
"""All tested claims."""


def main() -> None:
    """Print the page."""
    parser = described(__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the files")
    folder = parser.parse_args().folder
    sys.stdout.write(page(read_data(folder)))


def read_data(folder: Path) -> Data:
    """Read the files of all experiments."""
    data: dict[str, Rows] = {}
    for path in sorted(folder.glob("*.csv*")):
        name = path.name.partition(".")[0]
        data[name] = rows = read_rows(path)
        for space in {row.get("space", "") for row in rows} - {""}:
            data[f"{name}/{space}"] = [row for row in rows if row["space"] == space]
    return data


def page(data: Data) -> str:
    """Return the page of all claims."""
    found = {claim: effect(claim.number(data), claim.claimed_above) for claim in CLAIMS}
    findings = [Finding(claim, each, claim.at_optimum(data)) for claim, each in found.items() if each is not None]
    corrected = _corrected(findings)
    lines = [_row(each, *corrected[each]) for each in findings]
    missing: dict[str, list[str]] = {}
    for claim in (claim for claim, each in found.items() if each is None):
        missing.setdefault(f"{claim.paper}, {claim.where}", []).append(claim.claim)
    rest = [f"- {source}: {'; '.join(claims)}" for source, claims in missing.items()]
    rest = ["", "Not measured yet:", "", *rest] if rest else []
    return "\n".join([_HEAD.format(**_counts(findings, corrected)), *lines, _NOTES, *rest, *sections(data)]) + "\n"


@dataclass(frozen=True)
class Finding:
    """A claim and its measured effect.

    Attributes:
        at_optimum: shares of both variants' runs that reach the optimum, for a claim about cost.
    """

    claim: Claim
    effect: Effect
    at_optimum: tuple[float, float] | None = None

    @property
    def saturated(self) -> str:
        """A note on the verdict if over half of the runs of both variants reach the optimum."""
        if self.at_optimum is None or min(self.at_optimum) <= 0.5:
            return ""
        over, under = self.at_optimum
        return f" (saturated: {100 * over:.0f} and {100 * under:.0f} % of the runs are at the optimum)"

    def verdict(self, p: float, p_apart: float) -> str:
        """Return one of the four verdicts, given the corrected p-values; equivalence is checked first."""
        if self.claim.kind is Kind.GAIN and p_apart < ALPHA:
            return "equivalent"
        if self.claim.flaw or p >= ALPHA:
            return "undecided"
        return "holds" if self.effect.value > self.claim.claimed_above else "does not hold"


P_Values = tuple[float, float]
"""The corrected p-values of a claim: of a difference, and of a difference as large as the margin."""


def _corrected(found: Sequence[Finding]) -> dict[Finding, P_Values]:
    """Return the p-values after Holm's correction over all claims that were open before the measurement."""
    valid = [each for each in found if not each.claim.flaw and (each.effect.low is not None or not each.effect.p_apart)]
    pairs = (holm([getattr(each.effect, name) for each in valid]) for name in ("p", "p_apart"))
    return dict.fromkeys(found, (1.0, 1.0)) | dict(zip(valid, zip(*pairs, strict=True), strict=True))


def _counts(found: Sequence[Finding], corrected: Mapping[Finding, P_Values]) -> dict[str, int]:
    """Return the counts of claims for the head of the page."""
    verdicts: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    for each in found:
        verdicts[each.claim.kind].append(each.verdict(*corrected[each]))
    gains, premises = verdicts[Kind.GAIN], verdicts[Kind.PREMISE]
    equivalent = [each for each in found if each.verdict(*corrected[each]) == "equivalent"]
    return {
        **{"n": len(found), "gains": len(gains), "held": gains.count("holds"), "failed": gains.count("does not hold")},
        **{"open": gains.count("undecided"), "equivalent": len(equivalent)},
        "saturated": sum(bool(each.saturated) for each in equivalent),
        "constants": len(verdicts[Kind.CONSTANT]),
        **{"premises": len(premises), "premises_held": premises.count("holds")},
    }


_HEAD = """# The papers' claims

Of {n} measured claims, {gains} are about the gain of a method. Their verdicts:

| holds | does not hold | equivalent | undecided |
|---|---|---|---|
| {held} | {failed} | {equivalent}, {saturated} of them saturated | {open} |

Saturated means that over half of the runs of both methods reach the optimum, so a better method could not show there.
{premises_held} of {premises} premises hold, which shows no gain. {constants} numbers are constants, which follow from
the settings. *Undecided* does not mean equal: any effect within the interval is possible.

In the next table, higher is better for the claim: 2x means twice as fast, or half the trials, steps or seconds. The
first p-value is for the claimed number, the second for a difference of 2 % or more.

| source | claim | theirs | here (95 % interval; pairs/layers) | setting | p: claimed number, 2 % or more | verdict |
|---|---|---|---|---|---|---|"""

_NOTES = """
[The protocol](protocol.md) defines the verdicts. Intervals are Student's, over the means of layers, or of families of
networks. Unlike p-values, they are not corrected for the number of claims. `make bench-search` adds runs.

`exact` means exact tables of the accelerator's entire constrained spaces ([searches](data/search/tables.csv.xz),
[convergence](data/search/convergence.csv), [clusters](data/search/clusters.csv),
[networks](data/search/accelerator.csv)). The other claims are about entire networks
([seconds](data/search/networks_tuned.csv), [latencies](data/search/networks_timed.csv)), [live
layers](data/search/layers.csv) and [evaluators](data/search/evaluators.csv)."""


def _row(finding: Finding, p: float, p_apart: float) -> str:
    claim, found = finding.claim, finding.effect
    interval = "" if claim.flaw or found.low is None else f"{found.low:.2f}-{found.high:.2f}; "
    here = f"{found.value:.2f}x ({interval}{found.n}/{found.blocks})"
    verdict = finding.verdict(p, p_apart)
    verdict += finding.saturated if verdict == "equivalent" else " (a premise)" if claim.kind is Kind.PREMISE else ""
    if claim.flaw:
        verdict = claim.flaw if claim.kind is Kind.CONSTANT else f"{verdict}: {claim.flaw}"
    shown = "" if claim.flaw else ", ".join(f"{each:.2f}" if each >= 0.005 else "< 0.01" for each in (p, p_apart))
    source = f"{claim.paper}, {claim.where}"
    return line(source, claim.claim, claim.theirs, here, claim.setting, shown, verdict)


if __name__ == "__main__":
    main()

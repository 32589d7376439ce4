"""Test the claims of the five papers: write docs/results/claims.md from the files of `run.py`.

    python -m benchmarks.search.claims > docs/results/claims.md

``benchmarks/tables/claims.csv`` has the claims that can be tested here. Each is about a number: the ratio of a figure
of the variants ``over`` and ``under``, or the figure itself. A claim about searching is tested once for each kind of
spaces. docs/results/protocol.md defines the verdicts: holds, does not hold, equivalent, saturated, undecided.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import line, read_rows
from benchmarks.search.evidence import ALPHA, MARGIN, Effect, Logs, Rows, effect, holm
from benchmarks.search.exact import CLAIMS as FILE
from benchmarks.search.experiment import FOLDER
from benchmarks.search.figures import MEASURES, cost_at
from benchmarks.search.report import Data, sections

EXCLUDED = 1e-3
"""The paper's number is excluded if its one-sided p-value, uncorrected, is below this one."""

_AT_OPTIMUM = 1e-5
"""A run is at the optimum if its extra cost is at most this; files have five digits."""


class Kind(Enum):
    """The subject of a claim."""

    GAIN = "what a method gains"
    PREMISE = "a premise of a method"
    CONSTANT = "a number that follows from the settings, and cannot be otherwise"


class Verdict(Enum):
    """The outcome of a test."""

    HOLDS = "holds"
    FAILS = "does not hold"
    EQUIVALENT = "equivalent"
    SATURATED = "saturated"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and how it is tested here.

    Attributes:
        where: the figure or table in the paper.
        theirs: the paper's number.
        setting: where the claim is tested here.
        spaces: the kinds of spaces in which it is tested, separated by spaces; empty if the experiment has no kinds.
        experiment: the experiment whose rows the number is computed from.
        over, under: the variants with the compared figures; without `under`, the figures of `over` are averaged.
        figure: one of `MEASURES`.
        claimed_above: the claim holds if the number is above this one.
    """

    paper: str
    where: str
    claim: str
    theirs: str
    setting: str
    spaces: str
    experiment: str
    over: str
    under: str
    figure: str
    claimed_above: float
    kind: Kind

    @property
    def size(self) -> float | None:
        """The paper's number; None if it is a range, a maximum or words."""
        match = re.fullmatch(r"([\d.]+)x( fewer)?", self.theirs)
        return float(match[1]) if match else None

    @property
    def fails_below(self) -> float:
        """The claim does not hold if the number is below this one: a gain has to be at least the margin."""
        return self.claimed_above * (1 + MARGIN) if self.claimed_above >= 1 else self.claimed_above

    def logs(self, rows: Rows) -> Logs:
        """Return the number's logarithms from all rows; empty if rows are missing."""
        logs = MEASURES[self.figure].logs(
            rows, self.over, self.under, *_COLUMNS.get(self.experiment, ("variant", "layer"))
        )
        if self.experiment != "accelerator":
            return logs
        # Networks of a family (`vgg11`, `vgg16`) share layers, so they are one unit of replication.
        return {(name.rstrip("0123456789"), f"{name} {seed}"): value for (name, seed), value in logs.items()}

    def shares_at_optimum(self, rows: Rows) -> list[float]:
        """Return the shares of both variants' runs that reach the optimum; empty if the claim is not about cost."""
        if self.experiment == "accelerator":
            reached = [(row["variant"], float(row["latency_s"]) <= float(row["optimum_s"])) for row in rows]
        elif self.figure.startswith("cost"):
            column = f"gap_at_{self.figure.rpartition(' ')[2]}" if self.figure.startswith("cost at") else "gap_at_end"
            cost = cost_at(column if column != "gap_at_end" and column in rows[0] else "gap_at_end")
            reached = [(row["variant"], cost(row) <= 1 + _AT_OPTIMUM) for row in rows]
        else:
            return []
        both = [[at for variant, at in reached if variant == each] for each in (self.over, self.under)]
        return [sum(each) / len(each) for each in both]


@dataclass(frozen=True)
class Finding:
    """A claim in one kind of spaces, or where its experiment is, and its measured effect.

    Attributes:
        at_optimum: shares of both variants' runs that reach the optimum, for a claim about cost.
    """

    claim: Claim
    space: str
    effect: Effect
    at_optimum: tuple[float, ...] = ()

    @property
    def p_values(self) -> tuple[float, float, float]:
        """The p-values of the three statements: the claim holds, it does not, and there is no difference."""
        found, claim = self.effect, self.claim
        return found.p_above(claim.claimed_above), found.p_below(claim.fails_below), found.p_apart

    @property
    def is_open(self) -> bool:
        """Whether the claim could have come out either way; there are no p-values otherwise."""
        return self.claim.kind is not Kind.CONSTANT and (self.effect.low is not None or self.effect.is_equal)

    @property
    def is_excluded(self) -> bool:
        """Whether the paper's number is excluded."""
        size = self.claim.size
        return size is not None and self.is_open and self.effect.p_below(size) < EXCLUDED

    def verdict(self, p_holds: float, p_fails: float, p_apart: float) -> Verdict:
        """Return the verdict, given the corrected p-values.

        A gain cannot show where over half of the runs of a side are at the optimum. Only a loss can.
        """
        is_gain = self.claim.kind is Kind.GAIN
        if p_holds < ALPHA:
            return Verdict.HOLDS
        is_loss = p_fails < ALPHA and self.effect.high is not None and self.effect.high < 1 / (1 + MARGIN)
        if max(self.at_optimum, default=0) > 0.5 and not is_loss and min(p_fails, p_apart) < ALPHA:
            return Verdict.SATURATED
        if is_gain and p_apart < ALPHA:
            return Verdict.EQUIVALENT
        return Verdict.FAILS if p_fails < ALPHA else Verdict.UNDECIDED


_COLUMNS = {
    "accelerator": ("variant", "network"),
    "networks_tuned": ("tuner", "network"),
    "networks_timed": ("engine", "network"),
    "evaluators": ("evaluator", "layer"),
}
"""The columns of variants and units of replication of experiments that differ from the others."""

CLAIMS: Sequence[Claim] = tuple(
    Claim(**{**row, "claimed_above": float(row["claimed_above"]), "kind": Kind[row["kind"].upper()]})
    for row in read_rows(FILE)
)
"""All tested claims."""

SPACES = {"constrained": "constrained spaces", "open": "open spaces", "gpu": "GPUs", "": "elsewhere"}
"""The kinds of spaces, as the page names them; p-values are corrected within each."""


def main() -> None:
    """Print the page."""
    parser = make_parser(__doc__)
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


Verdicts = Mapping[Finding, tuple[Verdict, float]]
"""The verdict of each finding, and the corrected p-value that decides it."""


def verdicts_of(data: Data) -> Verdicts:
    """Return the verdicts of all claims with data, corrected within each kind of spaces (Holm)."""
    findings = list(_findings(data))
    verdicts: dict[Finding, tuple[Verdict, float]] = dict.fromkeys(findings, (Verdict.UNDECIDED, 1.0))
    for space in SPACES:
        tests = [each for each in findings if each.space == space and each.is_open]
        corrected = zip(*(holm(values) for values in zip(*(each.p_values for each in tests), strict=True)), strict=True)
        verdicts |= {each: (each.verdict(*p), min(p)) for each, p in zip(tests, corrected, strict=True)}
    return verdicts


def _findings(data: Data) -> Iterator[Finding]:
    """Yield the finding of each claim and kind of spaces with data."""
    for claim in CLAIMS:
        for space in claim.spaces.split() or [""]:
            rows = data.get(f"{claim.experiment}/{space}" if space else claim.experiment, ())
            if (found := effect(claim.logs(rows))) is not None:
                yield Finding(claim, space, found, tuple(claim.shares_at_optimum(rows)))


def page(data: Data) -> str:
    """Return the page of all claims."""
    verdicts = verdicts_of(data)
    at = {(each.claim, each.space): each for each in verdicts}
    searched = [
        _row(claim, [_cell(at[claim, each], verdicts) if (claim, each) in at else "" for each in _KINDS], at)
        for claim in CLAIMS
        if claim.spaces and any((claim, each) in at for each in _KINDS)
    ]
    others = [
        _row(claim, [_cell(at[claim, ""], verdicts)], at) for claim in CLAIMS if not claim.spaces and (claim, "") in at
    ]
    gaps = {claim: [each for each in claim.spaces.split() or [""] if (claim, each) not in at] for claim in CLAIMS}
    missing = [
        f"- {claim.paper}, {claim.where}: {claim.claim}{', '.join(f' ({SPACES[each]})' for each in own if each)}"
        for claim, own in gaps.items()
        if own
    ]
    parts = [_HEAD, *_counts(verdicts), "", _LEAD, _SEARCHED_HEAD, *searched, _OTHERS_HEAD, *others, _NOTES]
    rest = ["", "Not measured yet:", "", *missing] if missing else []
    return "\n".join([*parts, *rest, *sections(data)]) + "\n"


_KINDS = [space for space in SPACES if space]


def _counts(verdicts: Verdicts) -> list[str]:
    """Return the rows of the table of verdicts: claims about gains, by kind of spaces."""
    rows = []
    for space, title in SPACES.items():
        counts = Counter(
            verdict for each, (verdict, _) in verdicts.items() if (each.space, each.claim.kind) == (space, Kind.GAIN)
        )
        rows.append(line(title, *(str(counts[verdict]) for verdict in Verdict)))
    return rows


def _row(claim: Claim, found: Sequence[str], at: Mapping[tuple[Claim, str], Finding]) -> str:
    findings = [each for (one, _), each in at.items() if one == claim]
    excluded = [SPACES[each.space] if each.space else "yes" for each in findings if each.is_excluded]
    unclear = "" if claim.size is None or claim.kind is Kind.CONSTANT else "no"
    source = f"{claim.paper}, {claim.where}"
    return line(source, claim.claim, claim.setting, claim.theirs, *found, ", ".join(excluded) or unclear)


def _cell(finding: Finding, verdicts: Verdicts) -> str:
    """Return a finding in words: its verdict, number and interval, pairs and blocks."""
    found, measure = finding.effect, MEASURES[finding.claim.figure]
    ends = (found.value, found.low or found.value, found.high or found.value)
    value, *interval = ends if found.value >= 1 else (1 / ends[0], 1 / ends[2], 1 / ends[1])
    said = (measure.better if found.value >= 1 else measure.worse).format(f"{value:.2f}", share=100 * found.value)
    counts = f"{found.n}/{found.blocks}"
    if finding.claim.kind is Kind.CONSTANT:
        return f"{said} ({counts}), by its settings"
    verdict, p = verdicts[finding]
    title = f"{verdict.value} (a premise)" if finding.claim.kind is Kind.PREMISE else verdict.value
    shown = "" if found.low is None else "-".join(f"{each:.2f}" for each in interval) + "; "
    certain = "" if verdict is Verdict.UNDECIDED else "; p<0.001" if p < 0.001 else f"; p={p:.3f}"
    shares = "/".join(f"{100 * share:.0f}" for share in finding.at_optimum)
    ceiling = f"; {shares}%" if verdict is Verdict.SATURATED else ""
    return f"**{title}**: {said} ({shown}{counts}{certain}{ceiling})"


_HEAD = """# The papers' claims

Verdicts of the papers' claims about the gain of a method, by where they were tested. A claim that was tested in several
settings counts once for each.

| tested in | holds | does not hold | equivalent | saturated | undecided |
|---|---|---|---|---|---|"""

_LEAD = """*Does not hold* means that a gain of 2 % or more is excluded. *Saturated* means that over half of the runs of
one method are at the optimum, so a better method could not show. *Undecided* does not mean equal: any effect within the
interval is possible. Premises hold or not without showing a gain, and some numbers follow from the settings; neither is
counted.

*Constrained* spaces have only configs that can run, *open* ones, as in the papers, all configs. Both are of the
simulated accelerator. *GPUs* are twelve spaces of convolution and dedispersion that others measured on six GPUs (FAIR
Benchmark Hub for Auto-Tuning, DOI 10.5281/zenodo.15364124)."""

_SEARCHED_HEAD = """
## Claims about searching

A cell has the verdict, the number, its 95 % interval, the pairs of runs, the layers or kernels, the p-value of the
verdict and, if saturated, the shares of both methods' runs at the optimum. The last column names where the paper's
number is excluded (p < 0.001).

| source | claim | setting | theirs | constrained | open | GPUs | theirs is excluded |
|---|---|---|---|---|---|---|---|"""

_OTHERS_HEAD = """
## Other claims

| source | claim | setting | theirs | here | theirs is excluded |
|---|---|---|---|---|---|"""

_NOTES = """
[The protocol](protocol.md) defines the verdicts. Intervals are Student's, over the means of layers, kernels on a GPU,
or families of networks. Unlike the p-values, they are not corrected for the number of claims. `make bench-search` adds
runs.

*Exact* means on tables of entire spaces, whose optima are known ([searches](data/search/tables.csv.xz),
[convergence](data/search/convergence.csv), [clusters](data/search/clusters.csv),
[networks](data/search/accelerator.csv)). Other claims are about entire networks
([seconds](data/search/networks_tuned.csv), [latencies](data/search/networks_timed.csv)), [live
layers](data/search/layers.csv) and [evaluators](data/search/evaluators.csv)."""


if __name__ == "__main__":
    main()

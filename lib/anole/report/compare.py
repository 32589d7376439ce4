"""Compare two builds: whether their outputs agree, and which one is faster, with a confidence interval."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf, isfinite
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from anole.documents.build import FILE, Build, TensorInfo, check_build_files, read_build
from anole.errors import BuildError
from anole.evaluate.comparison import check_inputs, compare_outputs
from anole.evaluate.engine_factories import start_deployed
from anole.evaluate.network_runner import runner_of
from anole.evaluate.timing.pairs import PairTimer
from anole.evaluate.timing.sequential import ALPHA, Ratio, Verdict, compare_rounds
from anole.measure.device_access import device_access
from anole.report.tables import facts_grid
from anole.targets import get_device, get_target
from anole.targets.base import DeviceLocation
from anole.text_format import duration, percent, pluralize, significant

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Rules:
    """The limits of a comparison of builds.

    Attributes:
        threshold: the smallest relative difference of latencies that matters.
        tolerance: the maximum relative distance between the outputs.
        seconds: the time after which no round begins, per pair of builds.
        rounds: the maximum number of rounds per pair of builds.
    """

    threshold: float
    tolerance: float
    seconds: float
    rounds: int


@dataclass(frozen=True)
class Pair:
    """Two builds to compare: their folders and descriptions."""

    folders: tuple[Path, Path]
    builds: tuple[Build, Build]

    @property
    def precisions(self) -> tuple[str, str]:
        """The precisions of both builds, as text."""
        return self.builds[0].precision, self.builds[1].precision

    def __str__(self) -> str:
        return f"{self.folders[0]} and {self.folders[1]}"


@dataclass(frozen=True)
class ComparedBuilds:
    """The result of comparing two builds.

    Attributes:
        ratio: the latency of B over the latency of A; it has no rounds if it is computed, not measured.
        latencies_s: the undisturbed latencies of A and B, median over the rounds.
        precisions: the precisions of A and B.
        error: the distance between their outputs, relative to the norm.
        undisturbed: the share of undisturbed runs.
        seconds: the duration of the comparison.
        alpha: the maximum probability of a wrong verdict.
    """

    name: str
    ratio: Ratio
    latencies_s: tuple[float, float]
    precisions: tuple[str, str]
    error: float
    undisturbed: float
    seconds: float
    alpha: float

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object; infinite ends of the interval are null."""
        fields = asdict(self)
        fields["ratio"] = {name: value if isfinite(value) else None for name, value in fields["ratio"].items()}
        return {**fields, "verdict": self.ratio.verdict.value}


def pair_builds(first: Path, second: Path) -> dict[str, tuple[Path, Path]]:
    """Return the pairs of builds to compare, by name: two builds, or builds with the same name in two folders.

    Raises:
        BuildError: there is nothing to compare.
    """
    if (first / FILE).exists() and (second / FILE).exists():
        return {f"{first} and {second}": (first, second)}
    names_in_folders = [{path.parent.name for path in folder.glob(f"*/{FILE}")} for folder in (first, second)]
    for folder, names in zip((first, second), names_in_folders, strict=True):
        if not names and not (folder / FILE).exists():
            raise BuildError(f"{folder}: found neither a build nor folders of builds")
    common = sorted(names_in_folders[0] & names_in_folders[1])
    if not common:
        raise BuildError(f"{first} and {second} have no builds with the same name; give two builds or other folders")
    return {name: (first / name, second / name) for name in common}


def compare_builds(name: str, first: Path, second: Path, rules: Rules, alpha: float = ALPHA) -> ComparedBuilds:
    """Compare two builds, A and B, on the same inputs; the verdict is wrong with a probability of at most `alpha`.

    Raises:
        DocumentError: a folder is not a build, or its files do not match its description.
        BuildError: the builds cannot be compared, or their outputs differ.
    """
    pair = Pair((first, second), (read_build(first), read_build(second)))
    for folder, build in zip(pair.folders, pair.builds, strict=True):
        check_build_files(folder, build)
    _check_comparable(pair)
    if get_target(pair.builds[0].target_description).location is DeviceLocation.SIMULATOR:
        return _compare_simulated(name, pair, rules)
    return _compare_timed(name, pair, rules, alpha)


def _compare_timed(name: str, pair: Pair, rules: Rules, alpha: float) -> ComparedBuilds:
    """Compare builds for a device by timing them."""
    began_s = time.monotonic()
    devices = [get_device(build.target_description) for build in pair.builds]
    starts = partial(start_deployed, pair.folders[0].resolve()), partial(start_deployed, pair.folders[1].resolve())
    with device_access(devices[0]) as access:
        # Settings that differ, such as the number of threads, are stored in each build.
        common = dict(devices[0].environment().items() & devices[1].environment().items())
        timer = PairTimer(starts, devices[0].preload, {**common, **access.environment()}, str(pair))
        error = _check_difference(pair, timer.differ(check_inputs(pair.builds[0])), rules)
        with access.timing():
            ratio = compare_rounds(timer.take, rules.threshold, rules.seconds, rules.rounds, alpha)
    a_s, b_s = np.median([timed.latencies_s for timed in timer.rounds], axis=0).tolist()
    undisturbed = mean(timed.undisturbed for timed in timer.rounds)
    seconds = time.monotonic() - began_s
    return ComparedBuilds(name, ratio, (a_s, b_s), pair.precisions, error, undisturbed, seconds, alpha)


def _compare_simulated(name: str, pair: Pair, rules: Rules) -> ComparedBuilds:
    """Compare builds for a simulator by their computed latencies."""
    began_s, inputs = time.monotonic(), check_inputs(pair.builds[0])
    outputs, latencies_s = [], []
    for folder, build in zip(pair.folders, pair.builds, strict=True):
        assert build.accelerator is not None
        runner = runner_of(get_target(build.target_description))
        outputs.append([list(runner.run(folder, build, sample)) for sample in inputs])
        latencies_s.append(float(build.accelerator["latency_s"]))
    error = _check_difference(pair, compare_outputs(outputs[1], outputs[0]).relative_error, rules)
    exact_ratio = latencies_s[1] / latencies_s[0]
    ratio = Ratio(exact_ratio, exact_ratio, exact_ratio, 0, rules.threshold)
    a_s, b_s = latencies_s
    return ComparedBuilds(name, ratio, (a_s, b_s), pair.precisions, error, 1.0, time.monotonic() - began_s, 0.0)


def _check_comparable(pair: Pair) -> None:
    """Raise BuildError if the inputs, outputs or kinds of device differ, or if a device is absent."""
    a, b = pair.builds
    for kind, infos_a, infos_b in (("inputs", a.inputs, b.inputs), ("outputs", a.outputs, b.outputs)):
        # The names may differ: importing the same network in another way may rename them.
        if _describe(infos_a) != _describe(infos_b):
            raise BuildError(f"{pair}: have different {kind}: {_describe(infos_a)} and {_describe(infos_b)}")
    kinds = [build.target_description["kind"] for build in pair.builds]
    if kinds[0] != kinds[1]:
        raise BuildError(f"{pair}: one is for {kinds[0]}, the other for {kinds[1]}")
    for folder, build in zip(pair.folders, pair.builds, strict=True):
        if (absence := get_target(build.target_description).absence()) is not None:
            raise BuildError(f"{folder}: {absence}")


def _describe(infos: Sequence[TensorInfo]) -> str:
    return ", ".join(f"{info.dtype} {list(info.shape)}" for info in infos)


def _check_difference(pair: Pair, error: float, rules: Rules) -> float:
    """Return the error; raise BuildError if it exceeds the tolerance."""
    if not error <= rules.tolerance:
        raise BuildError(
            f"{pair}: their outputs ({' and '.join(pair.precisions)}) differ by {error:.2g}, relative to their norm; "
            f"at most {rules.tolerance:g} is allowed (--tolerance)"
        )
    return error


def render_compared(compared: ComparedBuilds, folders: tuple[Path, Path]) -> RenderableType:
    """Render the verdict on a pair of builds, with the evidence below it, for a terminal."""
    from rich.console import Group
    from rich.text import Text

    ratio, name = compared.ratio, compared.name
    subject = f"{name}: " if name == folders[0].name else ""
    sides = zip("AB", map(duration, compared.latencies_s), compared.precisions, map(str, folders), strict=True)
    runs = f"{percent(compared.undisturbed)} of runs undisturbed"
    evidence = f"{pluralize(ratio.rounds, 'round')} in {compared.seconds:.0f} s, {runs}" if ratio.rounds else "computed"
    return Group(
        Text(subject + describe_ratio(ratio), style=_STYLES[ratio.verdict]),
        facts_grid(sides),
        Text(f"  {evidence}; outputs differ by {significant(compared.error)}", style="dim"),
    )


_STYLES = {Verdict.SLOWER: "bold red", Verdict.FASTER: "bold green", Verdict.EQUAL: "bold", Verdict.OPEN: "yellow"}


def describe_ratio(ratio: Ratio) -> str:
    """Describe the ratio of B's latency to A's latency."""
    threshold = f"{100 * ratio.threshold:g} %"
    interval = f"[{100 * ratio.low - 100:+.1f} %, {100 * ratio.high - 100:+.1f} %]" if ratio.rounds else ""
    if not 0 < ratio.low <= ratio.high < inf:
        return f"open: {pluralize(ratio.rounds, 'round')} are too few; increase --seconds or --rounds"
    match ratio.verdict:
        case Verdict.SLOWER:
            return f"B is {100 * ratio.value - 100:.1f} % slower {interval}".rstrip()
        case Verdict.FASTER:
            return f"B is {100 - 100 * ratio.value:.1f} % faster {interval}".rstrip()
        case Verdict.EQUAL:
            return f"no difference larger than {threshold} {interval}".rstrip()
        case Verdict.OPEN:
            return f"open: B differs by {interval}, maybe more or less than {threshold}; increase --seconds or --rounds"

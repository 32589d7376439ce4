"""Reports the results of `compare.py` as Markdown: a table of networks, mean speedups, and the goals.

python -m benchmarks.networks.report < docs/results/data/networks.csv
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarks.common.arguments import described
from benchmarks.common.rows import Row, head, line, times
from benchmarks.networks.engines import OWN

RIVALS = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "openvino.default": "OpenVINO in its default precision",
    "torch": "torch eager",
    "torch.compile": "torch.compile",
    "untuned": "default configs",
}
"""The engines with a column in the table, by their names in the CSV."""

GOAL_RIVAL = "onnxruntime"
"""The rival that the goals refer to."""
MEAN_GOAL, LEAST_GOAL = 1.5, 1.0
"""The target speedups: the geometric mean over all networks, and the worst network's."""
NETWORKS = {
    "alexnet": ("AlexNet", 1.0),
    "vgg11": ("VGG-11", 1.7),
    "vgg13": ("VGG-13", 1.7),
    "vgg16": ("VGG-16", 1.7),
    "vgg19": ("VGG-19", 1.7),
    "resnet18": ("ResNet-18", 1.7),
    "resnet34": ("ResNet-34", 1.7),
    "resnet50": ("ResNet-50", 1.2),
    "squeezenet1_1": ("SqueezeNet 1.1", 1.2),
    "mobilenet_v2": ("MobileNet v2", 1.1),
    "transformer": ("Transformer encoder", 1.0),
}
"""Title and target speedup, by a model's name in models.papers.yaml without ``_onnx`` and ``_n8``."""


@dataclass(frozen=True)
class Network:
    """A compiled network and all engines that ran it, whose rows are by engine."""

    name: str
    batch: int
    rows: Mapping[str, Row]

    @property
    def title(self) -> str:
        """The network's title in a table."""
        known = NETWORKS.get(self._base)
        return self.name if known is None else known[0] + (" from ONNX" if "_onnx" in self.name else "")

    @property
    def goal(self) -> float | None:
        """The target speedup; None for a network that is in no paper."""
        known = NETWORKS.get(self._base)
        return None if known is None else known[1]

    def latency(self, engine: str) -> str:
        """Returns an engine's latency, to three digits or to the millisecond; empty if it did not run."""
        if engine not in self.rows:
            return ""
        latency_ms = float(self.rows[engine]["latency_ms"])
        return f"{latency_ms:.3g} ms" if latency_ms < 100 else f"{latency_ms:.0f} ms"

    def speedup(self, rival: str) -> float | None:
        """Returns the speedup over a rival; None if the rival did not run."""
        return float(self.rows[rival]["speedup"]) if rival in self.rows else None

    @property
    def _base(self) -> str:
        return self.name.removesuffix(f"_n{self.batch}").removesuffix("_onnx")


def main() -> None:
    """Prints the report of the CSV on standard input."""
    described(__doc__).parse_args()
    print("\n".join(report(networks_of(csv.DictReader(sys.stdin)))))


def networks_of(rows: Iterable[Row]) -> list[Network]:
    """Returns the networks of a CSV, in order; each starts with the row of the compiled network."""
    found: list[dict[str, Row]] = []
    for row in rows:
        if row["engine"] == OWN:
            found.append({})
        found[-1][row["engine"]] = row
    return [Network(engines[OWN]["network"], int(engines[OWN]["batch"]), engines) for engines in found]


def report(networks: Sequence[Network]) -> Iterator[str]:
    """Yields the lines of the report."""
    yield from _table(networks)
    for batch in sorted({network.batch for network in networks}):
        own = [network for network in networks if network.batch == batch]
        yield from ("", f"Batch {batch}, speedup over all networks:", "")
        yield from _means(own)
        yield ""
        yield from _goals(own)


def _table(networks: Sequence[Network]) -> Iterator[str]:
    """Yields a line for each network, with a column for each rival that ran any."""
    rivals = [rival for rival in RIVALS if any(rival in network.rows for network in networks)]
    beside = [f"beside {RIVALS[rival]}" for rival in rivals]
    yield from head("network", "batch", "Anole", RIVALS[GOAL_RIVAL], *beside, "relative error", "tuning", "trials")
    for network in networks:
        own = network.rows[OWN]
        yield line(
            *(network.title, network.batch, network.latency(OWN), network.latency(GOAL_RIVAL)),
            *(times(network.speedup(rival)) for rival in rivals),
            f"{float(own['relative_error']):.0e}".replace("e-0", "e-"),
            f"{float(own['tuning_s']):.0f} s" if own["tuning_s"] else "",
            own["trials_measured"],
        )


def _means(networks: Sequence[Network]) -> Iterator[str]:
    """Yields a line for each rival, with means over the networks that it ran."""
    yield from head("beside", "networks", "geometric mean", "least", "of")
    for rival, title in RIVALS.items():
        if speedups := _speedups(networks, rival):
            mean, (least, worst) = geometric_mean(speedup for speedup, _ in speedups), min(speedups)
            yield line(title, len(speedups), times(mean), times(least), worst)


def _goals(networks: Sequence[Network]) -> Iterator[str]:
    """Yields a line for each goal that says whether it was met."""
    if not (speedups := _speedups(networks, GOAL_RIVAL)):
        return
    yield from (f"Beside {RIVALS[GOAL_RIVAL]}:", "")
    for network in networks:
        speedup = network.speedup(GOAL_RIVAL)
        if network.goal is not None and speedup is not None:
            yield _verdict(network.title, speedup, network.goal)
    yield _verdict("geometric mean", geometric_mean(speedup for speedup, _ in speedups), MEAN_GOAL)
    yield _verdict("none slower", min(speedups)[0], LEAST_GOAL)


def _speedups(networks: Sequence[Network], rival: str) -> list[tuple[float, str]]:
    """Returns the speedups over a rival with the networks' names, for the networks that it ran."""
    found = ((network.speedup(rival), network.title) for network in networks)
    return [(speedup, title) for speedup, title in found if speedup is not None]


def _verdict(what: str, found: float, sought: float) -> str:
    return f"- {what}: {times(found)}, sought {times(sought)}: {'met' if found >= sought else 'missed'}"


if __name__ == "__main__":
    main()

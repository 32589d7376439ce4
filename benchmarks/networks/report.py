"""Report the results of `compare.py` as Markdown: a table of networks, and mean speedups.

python -m benchmarks.networks.report < docs/results/data/networks.csv
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import Row, head, line, times
from benchmarks.networks.engines import OWN

RIVALS = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "openvino.default": "OpenVINO in its default precision",
    "ncnn": "ncnn",
    "torch": "torch eager",
    "torch.compile": "torch.compile",
    "untuned": "default configs",
}
"""The engines with a column in the table, by their names in the CSV."""

NETWORKS = {
    **{"alexnet": "AlexNet", "vgg11": "VGG-11", "vgg13": "VGG-13", "vgg16": "VGG-16", "vgg19": "VGG-19"},
    **{"resnet18": "ResNet-18", "resnet34": "ResNet-34", "resnet50": "ResNet-50", "squeezenet1_1": "SqueezeNet 1.1"},
    **{"mobilenet_v2": "MobileNet v2", "transformer": "Transformer encoder"},
}
"""Titles, by a model's name in models.papers.yaml without ``_onnx`` and ``_n8``."""


@dataclass(frozen=True)
class Network:
    """A compiled network, with the rows of all engines that ran it."""

    name: str
    batch: int
    rows: Mapping[str, Row]

    @property
    def title(self) -> str:
        """The network's title in a table."""
        title = NETWORKS.get(self.name.removesuffix(f"_n{self.batch}").removesuffix("_onnx"))
        return self.name if title is None else title + (" from ONNX" if "_onnx" in self.name else "")

    def latency(self, engine: str) -> str:
        """Return the formatted latency of an engine; empty if it did not run."""
        if engine not in self.rows:
            return ""
        latency_ms = float(self.rows[engine]["latency_ms"])
        return f"{latency_ms:.3g} ms" if latency_ms < 100 else f"{latency_ms:.0f} ms"

    def speedup(self, baseline: str) -> float | None:
        """Return the speedup over a baseline; None if the baseline did not run."""
        return float(self.rows[baseline]["speedup"]) if baseline in self.rows else None


def main() -> None:
    """Print the report of the CSV on standard input."""
    make_parser(__doc__).parse_args()
    print("\n".join(report(networks_of(csv.DictReader(sys.stdin)))))


def networks_of(rows: Iterable[Row]) -> list[Network]:
    """Return the networks of a CSV file, in order; the row of the compiled network is the first of each network."""
    groups: list[dict[str, Row]] = []
    for row in rows:
        if row["engine"] == OWN:
            groups.append({})
        groups[-1][row["engine"]] = row
    return [Network(engines[OWN]["network"], int(engines[OWN]["batch"]), engines) for engines in groups]


def report(networks: Sequence[Network]) -> Iterator[str]:
    """Yield the lines of the report."""
    yield from _table(networks)
    for batch in sorted({network.batch for network in networks}):
        of_batch = [network for network in networks if network.batch == batch]
        yield from ("", f"Batch {batch}, speedup over all networks:", "")
        yield from _means(of_batch)


def _table(networks: Sequence[Network]) -> Iterator[str]:
    """Yield a table row for each network, with a column for each baseline that ran a network."""
    baselines = [name for name in RIVALS if any(name in network.rows for network in networks)]
    titles = [f"vs. {RIVALS[name]}" for name in baselines]
    yield from head("network", "batch", "Anole", RIVALS["onnxruntime"], *titles, "relative error", "tuning", "trials")
    for network in networks:
        row = network.rows[OWN]
        yield line(
            *(network.title, network.batch, network.latency(OWN), network.latency("onnxruntime")),
            *(times(network.speedup(name)) for name in baselines),
            f"{float(row['relative_error']):.0e}".replace("e-0", "e-"),
            f"{float(row['tuning_s']):.0f} s" if row["tuning_s"] else "",
            row["trials_measured"],
        )


def _means(networks: Sequence[Network]) -> Iterator[str]:
    """Yield a table row for each baseline, with the mean and minimum over the networks that it ran."""
    yield from head("vs.", "networks", "geometric mean", "min", "network")
    for baseline, title in RIVALS.items():
        pairs = ((network.speedup(baseline), network.title) for network in networks)
        if speedups := [(speedup, network) for speedup, network in pairs if speedup is not None]:
            mean, (minimum, network) = geometric_mean(speedup for speedup, _ in speedups), min(speedups)
            yield line(title, len(speedups), times(mean), times(minimum), network)


if __name__ == "__main__":
    main()

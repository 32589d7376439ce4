"""What the comparisons of search methods have in common: the layers and the tuners."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anole.project.hardware import describe_target
from anole.search.presets import PRESETS
from anole.spec.entries import TargetSpec
from anole.targets import get_target
from anole.task import Conv2d, Task

SAME = (1, 1, 1, 1)
LAYERS = {
    # Table 5 of the Chameleon paper: AlexNet's tasks 1 and 4, VGG-16's 1, 2 and 4, ResNet-18's 6, 9 and 11.
    "L1": Conv2d(1, 224, 224, 3, 64, (11, 11), (4, 4), (2, 2, 2, 2)),
    "L2": Conv2d(1, 13, 13, 384, 256, (3, 3), padding=SAME),
    "L3": Conv2d(1, 224, 224, 3, 64, (3, 3), padding=SAME),
    "L4": Conv2d(1, 224, 224, 64, 64, (3, 3), padding=SAME),
    "L5": Conv2d(1, 112, 112, 128, 128, (3, 3), padding=SAME),
    "L6": Conv2d(1, 28, 28, 128, 128, (3, 3), padding=SAME),
    "L7": Conv2d(1, 14, 14, 256, 256, (3, 3), padding=SAME),
    "L8": Conv2d(1, 14, 14, 256, 512, (1, 1), strides=(2, 2)),
}

BASELINE = "autotvm"
VARIANTS: dict[str, Mapping[str, Any]] = {
    **{preset: {"preset": preset} for preset in PRESETS if preset != "dcoc"},
    # The default preset without the layers before to learn from, without configs of most merit to begin with, and as it
    # was put together from the papers' parts.
    "anole cold": {"preset": "anole", "warm_start": False},
    "anole SA": {
        "preset": "anole",
        "explorer": {"name": "annealing", "n_steps": 150, "patience": 25},
        "warm_start": False,
    },
    "anole PPO+AS": {
        "preset": "anole",
        "explorer": {"name": "ppo", "n_steps": 250, "begin": "best", "converged_share": None, "n_candidates": 128},
        "sampler": {"name": "adaptive", "representative": "best"},
        "surrogate": {"max_depth": 3, "learning_rate": 0.3},
        "warm_start": False,
    },
    # What Chameleon adds to AutoTVM, part by part; the last is Chameleon itself, and so the same run.
    "SA+greedy batch 16": {"preset": "autotvm", "batch": 16},
    "SA+AS": {"preset": "chameleon", "explorer": "annealing"},
    "PPO+greedy": {"preset": "chameleon", "sampler": "greedy"},
    "PPO+AS": {"preset": "chameleon"},
    # What AdaTune adds; the last is AdaTune itself, and so the same run.
    "RFEI+SA+fixed": {"preset": "adatune", "explorer": "annealing", "sampler": "greedy", "evaluator": "fixed"},
    "RFEI+CSA+fixed": {"preset": "adatune", "evaluator": "fixed"},
    "RFEI+CSA+CV": {"preset": "adatune"},
}
"""Every tuner that is compared, as `anole.search.presets.read_tuner` reads it."""


@dataclass(frozen=True)
class Place:
    """Where search methods are compared.

    Attributes:
        kind: of the target, which is this machine's own.
        folder: of everything that is measured.
    """

    kind: str = "cpu"
    folder: Path = Path("db/tuners")

    def task_of(self, layer: str) -> Task:
        """Returns a layer's task."""
        description = describe_target(TargetSpec(self.kind, self.kind))
        version = get_target(description).template_version(LAYERS[layer])
        return Task(LAYERS[layer], description, version)


def add_place(parser: ArgumentParser) -> None:
    """Lets a command say where it compares."""
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu", help="this machine's own")
    parser.add_argument("--folder", type=Path, default=Path("db/tuners"), help="of everything that is measured")


def chosen(names: str, allowed: Mapping[str, Any]) -> list[str]:
    """Returns the names in a list with commas, or all that there are for an empty one.

    Raises:
        SystemExit: a name is unknown.
    """
    found = [name for name in names.split(",") if name] or list(allowed)
    if unknown := sorted(set(found) - set(allowed)):
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(allowed)}")
    return found

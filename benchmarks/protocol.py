"""The layers and tuners that all comparisons of search methods share."""

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
    # `anole` and its variants go on where nothing is to be gained, so that all are compared after equally many trials.
    **{preset: {"preset": preset, "min_gain": None} for preset in PRESETS if preset != "dcoc"},
    # The default preset without learning from earlier layers, without starting at the configs with the highest merit,
    # and as first assembled from the papers' parts.
    "anole cold": {"preset": "anole", "min_gain": None, "warm_start": False},
    "anole SA": {
        "preset": "anole",
        "min_gain": None,
        "explorer": {"name": "annealing", "n_steps": 150, "patience": 25},
        "warm_start": False,
    },
    "anole PPO+AS": {
        "preset": "anole",
        "min_gain": None,
        "explorer": {"name": "ppo", "n_steps": 250, "begin": "best", "converged_share": None, "n_candidates": 128},
        "sampler": {"name": "adaptive", "representative": "best"},
        "surrogate": {"max_depth": 3, "learning_rate": 0.3},
        "warm_start": False,
    },
    # Chameleon's additions to AutoTVM, part by part; the last variant is Chameleon itself, and therefore the same run.
    "SA+greedy batch 16": {"preset": "autotvm", "batch": 16},
    "SA+AS": {"preset": "chameleon", "explorer": "annealing"},
    "PPO+greedy": {"preset": "chameleon", "sampler": "greedy"},
    "PPO+AS": {"preset": "chameleon"},
    # AdaTune's additions; the last variant is AdaTune itself, and therefore the same run.
    "RFEI+SA+fixed": {"preset": "adatune", "explorer": "annealing", "sampler": "greedy", "evaluator": "fixed"},
    "RFEI+CSA+fixed": {"preset": "adatune", "evaluator": "fixed"},
    "RFEI+CSA+CV": {"preset": "adatune"},
}
"""All tuners to compare, in the format of `anole.search.presets.read_tuner`."""


@dataclass(frozen=True)
class Place:
    """Where search methods are compared.

    Attributes:
        kind: kind of the target, which is on this machine.
        folder: folder of all measurements.
    """

    kind: str = "cpu"
    folder: Path = Path("db/tuners")

    def task_of(self, layer: str) -> Task:
        """Returns a layer's task."""
        description = describe_target(TargetSpec(self.kind, self.kind))
        version = get_target(description).template_version(LAYERS[layer])
        return Task(LAYERS[layer], description, version)


def add_place(parser: ArgumentParser) -> None:
    """Adds the options that define the place of a comparison."""
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu", help="target of this machine")
    parser.add_argument("--folder", type=Path, default=Path("db/tuners"), help="folder of all measurements")


def chosen(names: str, allowed: Mapping[str, Any]) -> list[str]:
    """Returns the names in a comma-separated list; for an empty list, all allowed names.

    Raises:
        SystemExit: a name is unknown.
    """
    found = [name for name in names.split(",") if name] or list(allowed)
    if unknown := sorted(set(found) - set(allowed)):
        raise SystemExit(f"unknown: {', '.join(unknown)}; allowed: {', '.join(allowed)}")
    return found

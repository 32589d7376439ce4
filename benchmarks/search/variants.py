"""The layers and tuners in comparisons of search methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from anole.bench.tables import files
from anole.config.entries import TargetSpec
from anole.project.hardware import describe_target
from anole.search.loop import TUNER_VERSION
from anole.search.presets import PRESETS, read_tuner
from anole.search.settings import TunerSettings
from anole.targets import get_target
from anole.task import Conv2d, Task
from benchmarks.search.experiment import Job, version_of
from kit.controls import PerfectExplorer, SizedGreedy

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

SMALL_LAYERS = {"small": Conv2d(1, 6, 6, 8, 16, (3, 3), padding=SAME)}
"""A layer for quick runs of benchmarks, including runs on an emulated GPU; it is compared only on request."""

KNOWN_LAYERS = {**LAYERS, **SMALL_LAYERS}

Variants = Mapping[str, Mapping[str, Any]]

SA = {"name": "annealing", "n_candidates": 64}
SA_32 = {"name": "annealing", "n_candidates": 64, "patience_over": 32}
_PLANNED = {"n_candidates": 64}
GREEDY = {"name": "greedy", "diversity_ratio": None}
_AUTOTVM: Mapping[str, Any] = {"explorer": {"n_candidates": 64}, "sampler": GREEDY}
AUTOTVM_GREEDY = {"name": "greedy", "least_random": 1}
DE = {"name": "fixed", "number": 500, "repeats": 1, "max_s": 5.0}
SIZED = SizedGreedy(diversity_ratio=None, least_random=3)
"""Adaptive sampling without clusters, with the same number of random configs per batch."""
_TO_256: Mapping[str, Any] = {"max_iterations": 256, "trials": 256}
"""As many iterations as 256 trials take, to compare tuners with small batches after equally many trials."""
_PUBLISHED: Mapping[str, Any] = {"clustered": "all", "n_random": 0}
"""Adaptive sampling as in the paper: all knobs are clustered, no config is random, and a batch has at least 8."""

VARIANTS: Variants = {
    # `anole` and its variants do not end early, so all tuners are compared after equally many trials.
    **{preset: {"preset": preset, "min_gain": None} for preset in PRESETS if preset not in ("dcoc", "exhaustive")},
    # The default preset without learning from earlier layers.
    "anole cold": {"preset": "anole", "min_gain": None, "warm_start": False, **_TO_256},
    # The same as shipped, ending when no gain is expected.
    "anole cold, ends early": {"preset": "anole", "warm_start": False, **_TO_256},
    # Chameleon's additions to AutoTVM, part by part. Its baseline is AutoTVM with the defaults of its code, without
    # diversity; with it (figure 8), batches are chosen among twice as many candidates. "PPO+AS" is Chameleon itself.
    "SA+greedy": {"preset": "autotvm", **_AUTOTVM},
    "SA+diverse batch 16": {"preset": "autotvm", "batch": 16},
    "SA+AS": {"preset": "chameleon", "explorer": SA},
    "PPO+greedy": {"preset": "chameleon", "sampler": GREEDY},
    "PPO+diverse": {"preset": "chameleon", "explorer": {"n_candidates": 128}, "sampler": "greedy"},
    "PPO+AS": {"preset": "chameleon"},
    # Complete searches, as published; the others have equally many trials.
    "AutoTVM, 16 iterations": {"preset": "autotvm", **_AUTOTVM, "max_iterations": 16},
    "Chameleon, 16 iterations": {"preset": "chameleon", "max_iterations": 16},
    # Controls: the same explorer with the batch sizes of another variant's run on the same layer and seed.
    "SA+greedy sizes of AS": {"preset": "chameleon", "explorer": SA, "sizes": "SA+AS"},
    "PPO+greedy sizes of AS": {"preset": "chameleon", "sizes": "PPO+AS"},
    # AdaTune's additions, all in batches of 32; the last variant is AdaTune itself. DE is its baseline's evaluator,
    # with 500 runs and the same time limit as AdaTune's.
    "XGB+SA+DE": {"preset": "autotvm", "explorer": SA_32, "evaluator": DE, "batch": 32},
    "RFEI+SA+DE": {"preset": "adatune", "explorer": SA_32, "sampler": AUTOTVM_GREEDY, "evaluator": DE},
    "RFEI+CSA+DE": {"preset": "adatune", "evaluator": DE},
    "RFEI+SA+fixed": {"preset": "adatune", "explorer": SA_32, "sampler": AUTOTVM_GREEDY, "evaluator": "fixed"},
    "RFEI+CSA+fixed": {"preset": "adatune", "evaluator": "fixed"},
    "RFEI+CSA+CV": {"preset": "adatune"},
}
"""All compared tuners, in the format of `anole.search.presets.read_tuner`.

A control also names the variant whose batch sizes it copies (``sizes``), a variant with ``trials`` ends after these,
and one with ``described: False`` searches a space without a description.
"""

_NOT_OF_TUNERS = ("sizes", "trials", "described")

TABLE_VARIANTS: Variants = {
    **{
        name: VARIANTS[name]
        for name in (
            *("random", "autotvm", "release", "chameleon", "adatune", "anole cold", "anole cold, ends early"),
            *("SA+greedy", "SA+diverse batch 16", "SA+AS", "PPO+greedy", "PPO+diverse"),
            *("SA+greedy sizes of AS", "PPO+greedy sizes of AS"),
        )
    },
    # The surrogate sees only the knobs' own values, not the work and the buffer shares of a config.
    "autotvm, knobs alone": {"preset": "autotvm", "described": False},
    # Adaptive sampling to 256 trials, in the authors' form and in the paper's, and with other shares of random configs:
    # the authors' 3 of 16 in any batch, and none.
    "SA+AS to 256": {"preset": "chameleon", "explorer": SA, **_TO_256},
    "SA+AS as published": {"preset": "chameleon", "explorer": SA, "sampler": _PUBLISHED, **_TO_256},
    "chameleon to 256": {"preset": "chameleon", **_TO_256},
    "chameleon as published": {"preset": "chameleon", "sampler": _PUBLISHED, **_TO_256},
    "chameleon, random share": {"preset": "chameleon", "sampler": {"n_random": 0, "random_share": 0.1875}, **_TO_256},
    "chameleon, none random": {"preset": "chameleon", "sampler": {"n_random": 0}, **_TO_256},
    # AdaTune's baseline; on a table, the evaluator has no effect.
    "XGB+SA batch 32": {"preset": "autotvm", "explorer": SA_32, "batch": 32},
    # A Gaussian process takes minutes for more trials; the forest has the same number.
    "GP+CSA": {"preset": "adatune", "surrogate": "gaussian_process", "max_iterations": 8},
    # DCOC and its additions, part by part: as the paper prints algorithm 2, which drops what is not confident, and as
    # in its authors' plans of 64, which leave nothing to choose.
    "dcoc": {"preset": "dcoc"},
    "dcoc as printed": {"preset": "dcoc", "sampler": {"replaces": False}},
    "dcoc, 64 of 64": {"preset": "dcoc", "explorer": _PLANNED},
    "MAPPO+greedy": {"preset": "dcoc", "explorer": _PLANNED, "sampler": "greedy"},
    "dcoc batch 16": {"preset": "dcoc", "batch": 16},
    # Controls of learning: random policies without updates, a perfect explorer, and no learning.
    "release not learning": {"preset": "release", "explorer": {"learning_rate": 0}},
    "chameleon not learning": {"preset": "chameleon", "explorer": {"learning_rate": 0}},
    "dcoc not learning": {"preset": "dcoc", "explorer": {"learning_rate": 0}},
    "perfect+greedy": {"preset": "autotvm", "explorer": PerfectExplorer()},
    "perfect+greedy batch 16": {"preset": "autotvm", "explorer": PerfectExplorer(), "batch": 16},
    "by merit": {"preset": "random", "explorer": "by_merit", "batch": 16},
    "descent": {"preset": "random", "explorer": "descent", "batch": 16},
}
"""The compared tuners on exact tables, in the same format."""

OF_ALL = ("perfect+greedy", "perfect+greedy batch 16")
"""Variants that score all configs of a space, which takes too long in a large one."""
WITHOUT_MERIT = tuple(name for name in TABLE_VARIANTS if name not in (*OF_ALL, "by merit", "release not learning"))
"""The compared variants in large spaces without merit, where `by merit` is `random`."""


def tuner_of(variant: str, sizes: Sequence[int] = (), variants: Variants = VARIANTS) -> TunerSettings:
    """Return the settings of a variant; `sizes` are the batch sizes of a control."""
    plain = {name: value for name, value in variants[variant].items() if name not in _NOT_OF_TUNERS}
    parts: dict[str, Any] = {"explorer": plain.pop("explorer")} if is_dataclass(plain.get("explorer")) else {}
    if sized_as(variant, variants):
        parts["sampler"] = replace(SIZED, sizes=tuple(sizes))
    return replace(read_tuner(plain), **parts)


def sized_as(variant: str, variants: Variants = VARIANTS) -> str | None:
    """Return the variant whose batch sizes a control copies; None if the variant is no control."""
    return variants[variant].get("sizes")


@dataclass(frozen=True)
class Place:
    """A local target kind, and its setting ``space``, for comparing search methods."""

    kind: str = "cpu"
    space: str = "constrained"

    def task_of(self, layer: str) -> Task:
        """Return the task of a layer."""
        description = describe_target(TargetSpec(self.kind, self.kind, {"space": self.space}))
        workload = KNOWN_LAYERS[layer]
        return Task(workload, description, get_target(description).template_version(workload))


def jobs_on_tables(variants: Sequence[str], seeds: int, *settings: float) -> Iterator[Job]:
    """Yield layer, variant, seed and version on VTA's constrained tables; seeds are the outer loop."""
    for seed in range(seeds):
        for layer, path in files("vta_constrained").items():
            for variant in variants:
                plain = [path.read_bytes().hex(), tuner_of(variant).to_json(), TUNER_VERSION]
                yield layer, variant, str(seed), version_of(*plain, *settings)

"""Winograd tiles that round no more than the network bears: which layers have large ones, and what they get instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from anole.compile.matching import Match
from anole.compile.network_compiler import MatchedNetwork
from anole.documents.receipt import Receipt
from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.base import WINOGRAD, Target
from anole.task import Conv2d, Workload

RoundsTooMuch = Callable[[Path], bool]
"""Runs a complete build beside its model, see `anole.evaluate.rounding`."""

_FINE_POINTS = 6
"""The points along a side of the largest tiles that round at most about twice as much as direct convolution, such as
those of F(4x4, 3x3). Then so does a whole network, however its layers amplify rounding; evaluating allows three times
the error of a reference. Tiles of eight points round four times as much as these."""


def coarse_layers(network: MatchedNetwork) -> list[str]:
    """Returns the layers with large Winograd tiles, except those of locked configs."""
    return [layer for match in network.matches if _may_be_finer(match) for layer in match.layers]


def with_fine_tiles(network: MatchedNetwork, target: Target) -> MatchedNetwork:
    """Returns a network in which these layers have smaller tiles.

    A tuned task gets the fastest of its rivals, which include the best of each size; other tasks get a default.
    """
    matches = [
        _fine(match, network.receipts.get(match.task.key), target) if _may_be_finer(match) else match
        for match in network.matches
    ]
    return replace(network, matches=matches)


def _may_be_finer(match: Match) -> bool:
    return match.config is not None and not match.locked and _is_coarse(match.task.workload, match.config)


def _is_coarse(workload: Workload, config: Config) -> bool:
    """Returns whether a config has Winograd tiles of too many points."""
    if not isinstance(workload, Conv2d) or config.get(ALGORITHM) != WINOGRAD:
        return False
    return int(config["tile_size"]) > _largest_fine(workload)


def _largest_fine(workload: Conv2d) -> int:
    return _FINE_POINTS + 1 - workload.kernel[0]


def _fine(match: Match, receipt: Receipt | None, target: Target) -> Match:
    workload = match.task.workload
    assert isinstance(workload, Conv2d)
    space = target.space(workload)
    for rival in receipt.rivals if receipt is not None and match.run_key is not None else ():
        if not _is_coarse(workload, rival.config) and space.rejection(rival.config) is None:
            return replace(match, config=rival.config, latency_s=rival.latency_s)
    smaller = space.restricted({ALGORITHM: [WINOGRAD], "tile_size": [_largest_fine(workload)]}).best_drawn
    return match.untuned(match.reason or "its tuned config rounds more than the network bears", smaller)

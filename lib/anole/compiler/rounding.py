"""Replacement of configs whose rounding error is too large for a network by finer configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from anole.compiler.matching import Match
from anole.compiler.network_compiler import MatchedNetwork
from anole.documents.receipt import Receipt
from anole.record import Config
from anole.targets import kind_of
from anole.targets.base import Target, named_object
from anole.task import Workload

RoundingCheck = Callable[[Path], bool]
"""A check that compares a complete build with its model, see `anole.evaluate.correctness.winograd_error`."""

_Finer = Callable[[Workload, Config], Mapping[str, Sequence[Any]] | None]


def coarse_layers(network: MatchedNetwork, target: Target) -> list[str]:
    """Return the layers for which there are finer configs, except layers with locked configs."""
    return [layer for match in network.matches if _finer_knobs(match, _finer_rule(target)) for layer in match.layers]


def with_finer_configs(network: MatchedNetwork, target: Target) -> MatchedNetwork:
    """Return a network with finer configs for its coarse layers.

    A tuned task gets the fastest fine config in its receipt, which lists the best of each kind; others get a default.
    """
    matches = [_with_finer_config(match, network.receipts.get(match.task.key), target) for match in network.matches]
    return replace(network, matches=matches)


def _finer_rule(target: Target) -> _Finer:
    name = kind_of(target.description).finer_tiles
    return (lambda *_: None) if name is None else cast(_Finer, named_object(name))


def _finer_knobs(match: Match, finer: _Finer) -> Mapping[str, Sequence[Any]] | None:
    return None if match.config is None or match.locked else finer(match.task.workload, match.config)


def _with_finer_config(match: Match, receipt: Receipt | None, target: Target) -> Match:
    finer, workload = _finer_rule(target), match.task.workload
    if (knobs := _finer_knobs(match, finer)) is None:
        return match
    space = target.space(workload)
    for entry in receipt.rivals if receipt is not None and match.run_key is not None else ():
        if finer(workload, entry.config) is None and space.rejection(entry.config) is None:
            return replace(match, config=entry.config, latency_s=entry.latency_s)
    reason = match.reason or "its tuned config is too inaccurate for this network"
    return match.as_untuned(reason, space.restrict(knobs).best_sampled)

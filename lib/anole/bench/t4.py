"""Spaces that others measured: the T1 and T4 files of Kernel Tuner's benchmark hub, and Kernel Tuner's caches.

The T1 file describes a space, and each T4 file has its results on one device. See https://github.com/AutoTuningAssociation/benchmark_hub.
"""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anole.bench.problem import Problem
from anole.bench.spaces import limited, make_space
from anole.errors import ConfigError, StoreError
from anole.record import Config

_UNITS_S = {"seconds": 1.0, "milliseconds": 1e-3, "miliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
"""Seconds of each unit of time; the second spelling of milliseconds occurs in the hub's files."""

_CACHE_FAILURES = {"CompilationFailedConfig": "compile", "InvalidConfig": "constraints"}


@dataclass(frozen=True)
class _Result:
    """The result of one config: its cost in seconds, NaN for a failure, the kind of failure, and all run times."""

    config: Config
    cost_s: float
    failure: str
    runs_s: Sequence[float]


def read_t4(path: Path) -> Problem:
    """Read a T4 file, with the T1 file next to it, or a cache file of Kernel Tuner; either may be compressed by gzip.

    Configs without a result are invalid, and so are configs that violate a condition of T1.

    Raises:
        StoreError: a file is missing, or has another format.
    """
    try:
        plain = _read(path)
        name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix("_T4")
        if "cache" in plain:
            values, conditions = plain["tune_params"], list[str]()
            results = [_cached(each, values, plain.get("objective", "time")) for each in plain["cache"].values()]
        else:
            values, conditions = _described(_read(_t1_of(path)))
            unit_s = _UNITS_S[str(plain.get("metadata", {}).get("timeunit", "milliseconds")).lower()]
            results = [_result(each, values, unit_s) for each in plain["results"]]
        space = make_space(values, conditions)
        indices = space.indices(space.vectors_of(each.config for each in results))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise StoreError(f"{path}: is not a T4 file ({type(error).__name__}: {error})") from error
    mask = np.zeros(space.size, dtype=bool)
    mask[[index for index, each in zip(indices, results, strict=True) if each.failure != "constraints"]] = True
    space = limited(space, "it has no result", mask)
    at = dict(zip(indices.tolist(), results, strict=True))
    valid = [at[index] for index in space.all_valid_indices.tolist()]
    if not np.isfinite([each.cost_s for each in valid]).any():
        raise StoreError(f"{path}: none of its configs has a result")
    runs = [each.runs_s for each in valid]
    return Problem(name, space, np.array([each.cost_s for each in valid]), None, [each.failure for each in valid], runs)


def _read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return dict(json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))


def _t1_of(path: Path) -> Path:
    """Return the T1 file in a T4 file's folder whose name shares the T4 file's beginning, the longest such name."""
    t1_files = {each.name.partition("T1")[0].rstrip("-_"): each for each in path.parent.glob("*T1.json*")}
    for beginning in sorted(t1_files, key=len, reverse=True):
        if path.name.startswith(beginning):
            return t1_files[beginning]
    raise StoreError(f"{path}: has no T1 file next to it, such as {path.name.partition('_T4')[0]}-T1.json")


def _described(plain: Mapping[str, Any]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the values of each knob, and the conditions, of a T1 description."""
    space = plain["ConfigurationSpace"]
    values = {each["Name"]: each["Values"] for each in space["TuningParameters"]}
    lists = {name: list(ast.literal_eval(each) if isinstance(each, str) else each) for name, each in values.items()}
    return lists, [each["Expression"] for each in space.get("Conditions", ())]


def _result(plain: Mapping[str, Any], knobs: Mapping[str, Any], unit_s: float) -> _Result:
    config = {name: plain["configuration"][name] for name in knobs}
    runs_s = [unit_s * run for run in plain["times"].get("runtimes") or ()]
    if plain["invalidity"] != "correct":
        return _Result(config, np.nan, plain["invalidity"], runs_s)
    objective = plain.get("objectives", ["time"])[0]
    (cost,) = (each["value"] for each in plain["measurements"] if each["name"] == objective)
    return _Result(config, unit_s * float(cost), "", runs_s)


def _cached(plain: Mapping[str, Any], knobs: Mapping[str, Any], objective: str) -> _Result:
    """Return the result of one entry of a cache file of Kernel Tuner, whose times are milliseconds."""
    config, cost = {name: plain[name] for name in knobs}, plain[objective]
    runs_s = [1e-3 * run for run in plain.get("times", ())]
    if isinstance(cost, str):
        return _Result(config, np.nan, _CACHE_FAILURES.get(cost, "runtime"), runs_s)
    return _Result(config, 1e-3 * cost, "", runs_s)

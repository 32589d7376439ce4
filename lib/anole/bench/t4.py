"""Problems as files: T1 and T4 as in Kernel Tuner's benchmark hub, Kernel Tuner's caches, and Parquet.

A T1 file describes a space, and each T4 file has the results on one device:
https://github.com/AutoTuningAssociation/benchmark_hub.
"""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anole.bench.problem import Problem
from anole.bench.spaces import make_space, restrict_to
from anole.errors import ConfigError, StoreError
from anole.files import write_atomically
from anole.record import Config

_UNITS_S = {"seconds": 1.0, "milliseconds": 1e-3, "miliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
"""Seconds of each unit of time; the second spelling of milliseconds occurs in the hub's files."""

_TYPES = {int: "int", float: "float", bool: "bool"}
"""The types of T1 of Python's types."""

_CACHE_FAILURES = {"CompilationFailedConfig": "compile", "InvalidConfig": "constraints"}

_Result = tuple[Config, float, str, Sequence[float]]
"""A config with its cost in seconds, NaN for a failure, the kind of failure, and all run times."""


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
            results = [_decode_cached(each, values, plain.get("objective", "time")) for each in plain["cache"].values()]
        else:
            values, conditions = _decode_t1(_read(_find_t1(path)))
            unit_s = _UNITS_S[str(plain.get("metadata", {}).get("timeunit", "milliseconds")).lower()]
            results = [_decode_result(each, values, unit_s) for each in plain["results"]]
        space = make_space(values, conditions)
        indices = space.indices(space.vectors_of(config for config, *_ in results)).tolist()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise StoreError(f"{path}: is not a T4 file ({type(error).__name__}: {error})") from error
    results_by_index = {index: each for index, each in zip(indices, results, strict=True) if each[2] != "constraints"}
    space = restrict_to(space, "it has no result", np.isin(np.arange(space.size), list(results_by_index)))
    valid = [results_by_index[index] for index in space.all_valid_indices.tolist()]
    if not np.isfinite([cost_s for _, cost_s, *_ in valid]).any():
        raise StoreError(f"{path}: none of its configs has a result")
    _, costs_s, failures, runs_s = zip(*valid, strict=True)
    return Problem(name, space, np.array(costs_s), None, failures, runs_s)


def _read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return dict(json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))


def _find_t1(path: Path) -> Path:
    """Return the T1 file next to a T4 file whose name, without its ending, is the longest prefix of the T4 name."""
    t1_files = {each.name.partition("T1")[0].rstrip("-_"): each for each in path.parent.glob("*T1.json*")}
    for beginning in sorted(t1_files, key=len, reverse=True):
        if path.name.startswith(beginning):
            return t1_files[beginning]
    raise StoreError(f"{path}: has no T1 file next to it, such as {path.name.partition('_T4')[0]}-T1.json")


def _decode_t1(plain: Mapping[str, Any]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the values of each knob, and the conditions, of a T1 description."""
    space = plain["ConfigurationSpace"]
    values = {each["Name"]: each["Values"] for each in space["TuningParameters"]}
    lists = {name: list(ast.literal_eval(each) if isinstance(each, str) else each) for name, each in values.items()}
    return lists, [each["Expression"] for each in space.get("Conditions", ())]


def _decode_result(plain: Mapping[str, Any], knobs: Mapping[str, Any], unit_s: float) -> _Result:
    config = {name: plain["configuration"][name] for name in knobs}
    runs_s = [unit_s * run for run in plain["times"].get("runtimes") or ()]
    if plain["invalidity"] != "correct":
        return config, np.nan, plain["invalidity"], runs_s
    objective = plain.get("objectives", ["time"])[0]
    (cost,) = (each["value"] for each in plain["measurements"] if each["name"] == objective)
    return config, unit_s * float(cost), "", runs_s


def _decode_cached(plain: Mapping[str, Any], knobs: Mapping[str, Any], objective: str) -> _Result:
    """Return the result of one entry of a cache file of Kernel Tuner, whose times are milliseconds."""
    config, cost = {name: plain[name] for name in knobs}, plain[objective]
    runs_s = [1e-3 * run for run in plain.get("times", ())]
    if isinstance(cost, str):
        return config, np.nan, _CACHE_FAILURES.get(cost, "runtime"), runs_s
    return config, 1e-3 * cost, "", runs_s


def write_t4(problem: Problem, folder: Path) -> list[Path]:
    """Write a problem as a T1 file and a compressed T4 file, and return their paths.

    T1 has no conditions: valid configs are the ones with a result. The objective is ``cost``, and ``time`` the latency.
    """
    name, values = problem.name.replace("/", "-"), _plain_values(problem)
    described = {
        "General": {"BenchmarkName": name, "OutputFormat": "JSON"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": knob, "Type": _TYPES.get(type(each[0]), "string"), "Values": str(each), "Default": each[0]}
                for knob, each in values.items()
            ],
            "Conditions": [],
        },
        "KernelSpecification": {
            **{"Language": "Hypertuner", "KernelName": problem.subject.task_key, "KernelFile": ""},
            **{"GlobalSize": {"X": "1"}, "LocalSize": {"X": "1"}},
        },
    }
    t1, t4 = folder / f"{name}-T1.json", folder / f"{name}_T4.json.gz"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(t1, json.dumps(described, indent=1) + "\n")
    with gzip.open(t4, "wt", encoding="utf-8") as file:
        file.write('{"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}, "results": [')
        for row, vector in enumerate(problem.space.vectors(problem.space.all_valid_indices).tolist()):
            config = {knob: each[at] for (knob, each), at in zip(values.items(), vector, strict=True)}
            file.write(",\n"[not row :] + json.dumps(_encode_result(problem, row, config)))
        file.write("]}\n")
    return [t1, t4]


def write_parquet(problem: Problem, folder: Path) -> list[Path]:
    """Write a problem as a Parquet file with a row for each config, valid or not, and return its path.

    The columns: the knobs, ``valid``, ``program`` (the row of the first config with the same program), ``latency_s``,
    ``cost_s`` and ``merit``; the last four are null for invalid configs, and the seconds for failures.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise StoreError(f"{error}; `pip install 'anole[bench]'` installs it") from error

    space, valid = problem.space, problem.space.all_valid_indices
    vectors = space.vectors(np.arange(space.size))
    columns = {
        knob: np.array(each)[at] for (knob, each), at in zip(_plain_values(problem).items(), vectors.T, strict=True)
    }
    _, first, of_each = np.unique(space.all_identities, return_index=True, return_inverse=True)
    figures = {"program": valid[first][of_each], "latency_s": problem.latencies_s, "cost_s": problem.costs_s}
    if space.merit is not None:
        figures["merit"] = space.merit(space.columns(space.vectors(valid)))
    table = pyarrow.table({**columns, "valid": np.isin(np.arange(space.size), valid)})
    for name, figure in figures.items():
        every, is_null = np.zeros(space.size, dtype=figure.dtype), np.ones(space.size, dtype=bool)
        every[valid], is_null[valid] = figure, ~np.isfinite(figure)
        table = table.append_column(name, pyarrow.array(every, mask=is_null))
    path = folder / f"{problem.name.replace('/', '-')}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)
    return [path]


def _plain_values(problem: Problem) -> dict[str, list[Any]]:
    """Return the values of each knob; a split's values are text, such as ``4x16``."""
    knobs = problem.space.knobs
    return {knob.name: ["x".join(map(str, v)) if isinstance(v, tuple) else v for v in knob.values] for knob in knobs}


def _encode_result(problem: Problem, row: int, config: Config) -> dict[str, Any]:
    """Return the T4 result of a valid config."""
    latency_s, cost_s = float(problem.latencies_s[row]), float(problem.costs_s[row])
    runs_s = [latency_s] if problem.repeats_s is None else problem.repeats_s[row]
    failed = not np.isfinite(cost_s)
    measured = {"cost": "RuntimeFailedConfig" if failed else 1e3 * cost_s}
    if np.isfinite(latency_s):
        measured["time"] = 1e3 * latency_s
    return {
        "configuration": config,
        "times": {"runtimes": [1e3 * run_s for run_s in runs_s if np.isfinite(run_s)]},
        "invalidity": ((problem.failures[row] if problem.failures else "") or "runtime") if failed else "correct",
        "correctness": int(not failed),
        "measurements": [{"name": name, "value": value, "unit": "ms"} for name, value in measured.items()],
        "objectives": ["cost"],
    }

"""Transfer learning: the trials of similar tasks as training examples, which warm-start a new task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError, StoreError
from anole.record import Source, Trial
from anole.search.roles import Examples
from anole.space.space import Space
from anole.store.shard import ShardContent, is_copy, read_head, read_shard, shard_paths
from anole.targets import get_target
from anole.task import Task, Workload

_Content = TypeVar("_Content")

N_SOURCES = 8
"""Maximum number of similar tasks to learn from."""

logger = logging.getLogger(__name__)


def find_sources(shards_dir: Path, task: Task, n_sources: int = N_SOURCES) -> list[Source]:
    """Return the run with the most successful trials of each task among those most similar to a task.

    Similar tasks have the same operator, template and target; their distance is the Euclidean distance between the
    logarithms of their shapes. Runs of the task itself are excluded, which keeps repeated runs independent.

    Shards that cannot be read are skipped with a warning.
    """
    workloads = dict(_similar_tasks(shards_dir, task))
    folders = sorted(workloads, key=lambda folder: (_distance(task.workload, workloads[folder]), folder))
    sources: list[Source] = []
    for folder in folders:
        paths = (path for path in sorted(folder.glob("*.jsonl")) if not is_copy(path))
        runs = [content for path in paths if (content := _read_or_warn(read_shard, path)) is not None]
        longest_run = max(runs, key=_n_working, default=None)
        if longest_run is not None and _n_working(longest_run):
            sources.append(Source(longest_run.task.key, longest_run.run.key, len(longest_run.trials)))
        if len(sources) == n_sources:
            break
    return sources


def read_prior(shards_dir: Path, sources: Sequence[Source], space: Space) -> Examples | None:
    """Return the trials of other tasks' runs as examples with the features of a space; None if there are none.

    Features are matched by name; features that a source does not have are 0. Scores are relative to the best score
    of the run. A run whose shard cannot be read or whose configs are no longer valid is skipped with a warning.
    """
    priors = []
    for source in sources:
        content = _read_or_warn(read_shard, shards_dir / source.task_key / f"{source.run_key}.jsonl")
        examples = None if content is None else _examples(content.task, content.trials[: source.trials], space)
        if examples is not None:
            priors.append(examples)
    if not priors:
        return None
    features, scores = (np.concatenate([getattr(prior, name) for prior in priors]) for name in ("features", "scores"))
    return Examples(features, scores)


def _similar_tasks(shards_dir: Path, task: Task) -> Iterator[tuple[Path, Workload]]:
    """Yield the shard folders and workloads of similar tasks."""
    signature = (task.workload.operator, task.template_version, dict(task.target))
    for path in shard_paths(shards_dir):
        if path.parent.name == task.key or is_copy(path):
            continue
        head = _read_or_warn(read_head, path)
        if head is None:
            continue
        _, source_task = head
        if (source_task.workload.operator, source_task.template_version, dict(source_task.target)) == signature:
            yield path.parent, source_task.workload


def _read_or_warn(read: Callable[[Path], _Content | None], path: Path) -> _Content | None:
    """Read a shard with `read`; return None and log a warning if that fails."""
    try:
        return read(path)
    except StoreError as error:
        logger.warning("skipping a run of a similar task: %s", error)
        return None


def _n_working(content: ShardContent) -> int:
    return sum(trial.gflops is not None for trial in content.trials)


def _distance(a: Workload, b: Workload) -> float:
    return float(np.linalg.norm(_logarithms(asdict(a)) - _logarithms(asdict(b))))


def _logarithms(plain: dict[str, Any]) -> NDArray[np.float64]:
    """Return log2(1 + n) for each number n of a plain workload, in order."""
    flat = (value if isinstance(value, (list, tuple)) else [value] for value in plain.values())
    numbers = [number for values in flat for number in values if isinstance(number, (int, float))]
    return np.log2(np.array(numbers, dtype=np.float64) + 1)


def _examples(task: Task, trials: Sequence[Trial], space: Space) -> Examples | None:
    """Return the trials of another task as examples with a space's features; None if no trial can be used."""
    source_space = get_target(task.target).space(task.workload)
    try:
        vectors = source_space.vectors_of(trial.config for trial in trials)
    except ConfigError as error:
        logger.warning("skipping a run of a similar task: a trial of %s: %s", task.label, error)
        return None
    gflops = np.array([trial.gflops or 0.0 for trial in trials])
    if not gflops.any():
        return None
    columns = dict(zip(source_space.feature_names, source_space.features(vectors).T, strict=True))
    zeros = np.zeros(len(trials), dtype=np.float32)
    features = np.stack([columns.get(name, zeros) for name in space.feature_names], axis=1)
    return Examples(features, gflops / gflops.max())

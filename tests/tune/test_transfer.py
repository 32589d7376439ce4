"""Transfer learning from similar tasks, with real shards of synthetic trials."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anole.record import Measurement, Run, Source, Status, Trial, utc_now
from anole.search.roles import History
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.space import Space
from anole.store.shard import Shard, shard_path
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Conv2d, Dense, Task
from anole.tune.transfer import find_sources, read_prior

CPU = describe_cpu(threads=1)


def conv(channels: int, size: int, **target: object) -> Task:
    workload = Conv2d(1, size, size, channels, channels, (3, 3), padding=(1, 1, 1, 1))
    return Task(workload, {**CPU, **target}, 1)


def space_of(task: Task) -> Space:
    return get_target(task.target).space(task.workload)


def latencies_s(task: Task, vectors: np.ndarray) -> np.ndarray:
    """Return synthetic latencies: lowest with panels of 32 filters and few rows; 1 ms for other operators."""
    columns = space_of(task).columns(vectors)
    if "tile_f" not in columns:
        return np.full(len(vectors), 1e-3)
    return 1e-3 * (1 + np.abs(columns["tile_f"][:, 2] - 32) / 16 + columns["tile_y"][:, 2] / 4)


def write_run(shards: Path, task: Task, n_trials: int, seed: int = 0, working: bool = True) -> Run:
    """Write a shard of random trials; trial 3 fails, or all of them if not `working`."""
    run, space = Run(task.key, "random", seed, 1, {}), space_of(task)
    vectors = space.sample(n_trials, np.random.default_rng(seed))
    with Shard.open(shards, run, task) as shard:
        for number, (vector, latency_s) in enumerate(zip(vectors, latencies_s(task, vectors).tolist(), strict=True)):
            failed = not working or number == 3
            measurement = Measurement(Status.RUN_ERROR, "no") if failed else Measurement(Status.OK, latency_s=latency_s)
            gflops = None if failed else task.workload.flop / latency_s / 1e9
            shard.append_trial(Trial(number, 0, space.config(vector), measurement, 1.0, gflops, utc_now()))
    return run


def test_the_nearest_tasks_come_first_each_with_its_longest_run(tmp_path):
    far, near, other_operator = conv(256, 7), conv(64, 28), Task(Dense(1, 64, 64), CPU, 1)
    write_run(tmp_path, far, 5)
    write_run(tmp_path, near, 6, seed=1)
    longest = write_run(tmp_path, near, 9, seed=2)
    write_run(tmp_path, other_operator, 5)
    write_run(tmp_path, conv(64, 30, threads=2), 5)
    write_run(tmp_path, conv(64, 26), 5, working=False)
    task = conv(64, 56)
    write_run(tmp_path, task, 5)
    sources = find_sources(tmp_path, task)
    assert [source.task_key for source in sources] == [near.key, far.key]
    assert sources[0] == Source(near.key, longest.key, 9)
    assert find_sources(tmp_path, task, n_sources=1) == sources[:1]


def test_a_missing_folder_has_no_sources(tmp_path):
    task = conv(64, 56)
    assert find_sources(tmp_path / "none", task) == []
    assert read_prior(tmp_path, [], space_of(task)) is None


def test_examples_have_the_features_of_the_new_task(tmp_path):
    task, near = conv(64, 56), conv(32, 56)
    run = write_run(tmp_path, near, 9)
    space, near_space = map(space_of, (task, near))
    prior = read_prior(tmp_path, [Source(near.key, run.key, 6)], space)
    assert prior is not None and len(prior) == 6
    assert prior.features.shape == (6, len(space.feature_names))
    assert prior.scores.max() == 1.0 and prior.scores[3] == 0.0
    vectors = near_space.sample(9, np.random.default_rng(0))[:6]
    column = space.feature_names.index("tile_f.2")
    np.testing.assert_allclose(prior.features[:, column], np.log2(near_space.columns(vectors)["tile_f"][:, 2] + 1))


def test_corrupt_and_missing_sources_are_skipped(tmp_path, caplog):
    task, near, corrupt_task = conv(64, 56), conv(64, 28), conv(64, 14)
    run = write_run(tmp_path, near, 9)
    corrupt = shard_path(tmp_path, write_run(tmp_path, corrupt_task, 9))
    corrupt.write_text("nonsense\n")
    assert [source.run_key for source in find_sources(tmp_path, task)] == [run.key]
    assert "skipping a run of a similar task" in caplog.text
    sources = [Source(near.key, run.key, 9), Source(corrupt_task.key, corrupt.stem, 9), Source(task.key, run.key, 9)]
    prior = read_prior(tmp_path, sources, space_of(task))
    assert prior is not None and len(prior) == 9


def test_a_surrogate_trained_on_similar_tasks_ranks_the_configs_of_a_new_one(tmp_path):
    """The surrogate has seen no trial of the new task."""
    for channels, size in ((32, 56), (128, 28), (64, 14)):
        write_run(tmp_path, conv(channels, size), 128)
    task, space = conv(64, 56), space_of(conv(64, 56))
    prior = read_prior(tmp_path, find_sources(tmp_path, task), space)
    surrogate = BoostedTrees().start(space)
    surrogate.fit(History(space, task.workload.flop, prior))
    vectors = space.sample(300, np.random.default_rng(9))
    speed = 1 / latencies_s(task, vectors)
    best_predicted = np.argsort(-surrogate.score(vectors))[:30]
    assert speed[best_predicted].mean() > np.quantile(speed, 0.8)


def test_a_history_with_trials_of_its_own_ignores_the_prior(tmp_path):
    write_run(tmp_path, conv(32, 56), 64)
    task, space = conv(64, 56), space_of(conv(64, 56))
    prior = read_prior(tmp_path, find_sources(tmp_path, task), space)
    history = History(space, 1, prior)
    assert history.examples() is prior
    vectors = space.sample(10, np.random.default_rng(0))
    history.add(vectors, [Measurement(Status.OK, latency_s=1.0 + row) for row in range(10)])
    np.testing.assert_array_equal(history.examples().features, space.features(vectors))

"""The views of the database: best configs, failures, and comparisons of builds; see also `test_view_plans`."""

from __future__ import annotations

import json

import pytest


def confirm(project, run, latencies_s: dict[int, float | None]) -> None:
    """Append a round of confirmations, given as trial number to latency, fastest first."""
    with project.open(run) as shard:
        for rank, (number, latency_s) in enumerate(latencies_s.items()):
            trial = shard.trials[number]
            shard.append_confirmation(project.confirmation_of(trial, latency_s, len(shard.trials), rank))


def best(project, view: str = "best_of_run") -> list[tuple[int, float, int]]:
    """Return the trial's number, its latency and whether it is confirmed for each row."""
    project.merge()
    rows = project.rows(f"select config, latency_s, confirmed from {view}")
    return [(json.loads(row["config"])["tile_f"][0] - 1, row["latency_s"], row["confirmed"]) for row in rows]


@pytest.fixture
def run(project):
    run = project.run_of(project.CONV)
    project.tune(run, project.CONV, [3e-3, None, 1e-3, 2e-3])
    return run


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([], (2, 1e-3, 0)),
        ([{3: 2.1e-3, 2: 2.2e-3}], (3, 2.1e-3, 1)),
        ([{2: 0.5e-3, 3: 0.6e-3}, {3: 1.9e-3, 2: 2.0e-3}], (3, 1.9e-3, 1)),
        ([{3: 1.05e-3, 2: 1.0e-3}], (3, 1.05e-3, 1)),
        ([{2: None}], (3, 2e-3, 0)),
    ],
    ids=["tried", "confirmed", "interrupted and repeated", "tie", "failed"],
)
def test_the_best_config_is_the_last_one_chosen(project, run, rounds, expected) -> None:
    for latencies_s in rounds:
        confirm(project, run, latencies_s)
    assert best(project) == [expected]


def test_only_the_last_round_of_confirmations_counts(project, run) -> None:
    confirm(project, run, {3: 1.05e-3, 2: 1.1e-3})
    project.tune(run, project.CONV, [1.2e-3])
    assert best(project) == [(3, 1.05e-3, 1)]
    confirm(project, run, {4: 1.3e-3, 2: 1.4e-3})
    assert best(project) == [(4, 1.3e-3, 1)]


def test_the_rejected_share_of_a_space_is_listed_by_reason(project) -> None:
    project.fill()
    project.merge()
    rows = project.rows("select reason, share, size, target_kind from rejections order by share")
    assert [(row["reason"], row["share"]) for row in rows] == [("too wide", 0.125), ("too many threads", 0.25)]
    assert {(row["size"], row["target_kind"]) for row in rows} == {(50_000, "cpu")}


def test_failures_are_counted_by_the_first_line_of_their_error(project, run) -> None:
    project.tune(project.run_of(project.DENSE), project.DENSE, [None, None])
    project.merge()
    (failure,) = project.rows("select * from failures")
    assert (failure["status"], failure["error"]) == ("run_error", "Segmentation fault")
    assert (failure["count"], failure["task_count"]) == (3, 2)
    assert failure["example_run_key"] == project.run_of(project.DENSE).key
    assert failure["example_number"] == 0


def test_the_usage_of_a_task_lists_its_models(project) -> None:
    project.extract("b", [(project.CONV, 6), (project.DENSE, 1)])
    project.extract("a", [(project.CONV, 4)])
    project.merge()
    rows = project.rows("select label, target, model_count, models, weight from task_usage order by label")
    assert [tuple(row.values()) for row in rows] == [
        (project.CONV.label, "cpu", 2, "a, b", 10),
        (project.DENSE.label, "cpu", 1, "b", 1),
    ]


def test_model_latency_includes_the_variation_of_outputs(project) -> None:
    project.fill()
    project.evaluate("resnet18-cpu", 0.016, output_variation=0.25)
    project.merge()
    rows = project.rows("select build, reference, relative_error, output_variation from model_latency order by 1, 2")
    assert [tuple(row.values()) for row in rows] == [
        ("resnet18-cpu", "onnxruntime", 4e-6, 0.25),
        ("resnet18-cpu", "torch", 4e-6, 0.25),
        ("resnet34-cpu", "onnxruntime", 4e-6, None),
        ("resnet34-cpu", "torch", 4e-6, None),
    ]


def test_latencies_under_load_are_compared_with_each_reference(project) -> None:
    project.fill()
    project.merge()
    rows = project.rows("select * from model_load_latency order by neighbours, reference")
    assert [(row["neighbours"], row["reference"], row["p50_speedup"], row["p95_speedup"]) for row in rows] == [
        (0, "onnxruntime", pytest.approx(1.8), pytest.approx(2.5)),
        (0, "torch", pytest.approx(2.4), pytest.approx(1.5)),
        (2, "onnxruntime", pytest.approx(0.375), pytest.approx(0.45)),
        (2, "torch", pytest.approx(1.25), pytest.approx(1.25)),
    ]
    assert (rows[2]["build"], rows[2]["p99_s"], rows[2]["reference_p99_s"]) == ("resnet18-cpu", 0.25, 0.1)
    assert (rows[2]["runs"], rows[2]["reference_runs"]) == (48, 102)

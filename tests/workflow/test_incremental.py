"""Only what changed is done again, shown by the jobs that Snakemake really runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.workflow

SHARED = "conv2d 3->16 k3x3 s1 8x8"
OF_TINY = "conv2d 16->16 k3x3 s1 8x8"
OF_CHAIN = "conv2d 16->32 k3x3 s1 8x8"


def test_a_layer_of_two_models_is_tuned_once(tuned_two: Any) -> None:
    project, outcome = tuned_two
    assert outcome.jobs["extract"] == ["chain-cpu", "tiny-cpu"]
    assert project.tuned_labels(outcome) == sorted([SHARED, OF_TINY, OF_CHAIN])
    assert all(len(content.trials) == 2 for content in project.shards().values())


def test_a_comment_runs_nothing(two: Any) -> None:
    text = (two.folder / "models.yaml").read_text()
    (two.folder / "models.yaml").write_text(f"# for the record\n{text}\n# the end\n")
    outcome = two.snakemake("tuned")
    assert (outcome.code, outcome.jobs) == (0, {})


@pytest.mark.guard
def test_a_changed_layer_of_a_factory_is_the_only_one_tuned(two: Any) -> None:
    two.edit("nets.py", "nn.Conv2d(16, 16, 3, padding=1)", "nn.Conv2d(16, 24, 3, padding=1)")
    outcome = two.snakemake("tuned")
    assert (outcome.code, outcome.jobs["extract"]) == (0, ["tiny-cpu"])
    assert two.tuned_labels(outcome) == ["conv2d 16->24 k3x3 s1 8x8"]


def test_a_changed_layer_of_an_onnx_file_is_the_only_one_tuned(two: Any, onnx_writer: Callable[..., None]) -> None:
    onnx_writer(two.folder / "chain.onnx", [16, 40])
    outcome = two.snakemake("tuned")
    assert (outcome.code, outcome.jobs["extract"]) == (0, ["chain-cpu"])
    assert two.tuned_labels(outcome) == ["conv2d 16->40 k3x3 s1 8x8"]


@pytest.mark.guard
def test_more_trials_measure_the_difference_and_fewer_nothing(one: Any) -> None:
    (path,) = one.shards()
    before = path.read_bytes()
    one.edit("models.yaml", "trials: 2", "trials: 3")
    outcome = one.snakemake("tuned")
    assert (outcome.code, list(outcome.jobs)) == (0, ["tune"])
    after = path.read_bytes()
    assert after.startswith(before)
    assert len(one.shards()[path].trials) == 3
    one.edit("models.yaml", "trials: 3", "trials: 1")
    outcome = one.snakemake("tuned")
    assert (outcome.code, list(outcome.jobs)) == (0, ["tune"])
    assert path.read_bytes() == after


@pytest.mark.guard
def test_snakemake_sleeps_while_trials_are_measured(two: Any) -> None:
    two.edit("models.yaml", "trials: 2", "trials: 3")
    outcome = two.snakemake("tuned", "--verbose")
    assert (outcome.code, len(outcome.jobs["tune"])) == (0, 3)
    # One pass for each job that started or ended; with a limit on their rate, one for each second and ended job, too.
    assert 2 <= outcome.output.count("Resources before job selection") <= 6, outcome.output


@pytest.mark.guard
def test_another_target_tunes_everything_anew(one: Any) -> None:
    one.edit("models.yaml", "threads: 1", "threads: 1\n    mcpu: x86-64-v2")
    outcome = one.snakemake("tuned")
    assert (outcome.code, sorted(outcome.jobs)) == (0, ["extract", "tune"])
    assert len(one.shards()) == 2
    assert one.tuned_labels(outcome) == [SHARED]


@pytest.mark.guard
def test_tasks_that_share_a_budget_are_tuned_in_one_job_and_once(two: Any) -> None:
    plain = yaml.safe_load((two.folder / "models.yaml").read_text())
    del plain["tuning"]["trials"]
    plain["tuning"] |= {"total_trials": 5, "batch": 2}
    plain["builds"] = plain["builds"][:1]
    two.write(plain["models"], tuning=plain["tuning"], builds=plain["builds"])
    outcome = two.snakemake("tuned")
    assert (outcome.code, list(outcome.jobs), len(outcome.jobs["tune_together"])) == (0, ["tune_together"], 1)
    shared = [content for content in two.shards().values() if content.run.settings["batch"] == 2]
    assert sum(len(content.trials) for content in shared) == 5 and len(shared) == 2
    assert two.snakemake("tuned").jobs == {}
    assert "Nothing to do" not in (planned := two.anole("plan").stdout) and "of 5 shared" in planned


@pytest.mark.guard
def test_a_factory_may_import_a_package_of_the_callers_path(empty: Any, tmp_path_factory: Any) -> None:
    empty.packages = tmp_path_factory.mktemp("the user's packages")
    (empty.packages / "layers.py").write_text("from torch import nn\n\ndef last():\n    return nn.Flatten()\n")
    (empty.folder / "nets.py").write_text("from layers import last\n\ndef net():\n    return last()\n")
    empty.write({"net": {"source": "torch:nets:net", "inputs": {"x": [1, 3]}}})
    outcome = empty.snakemake("tuned")
    assert (outcome.code, outcome.jobs) == (0, {"extract": ["net-cpu"]}), outcome.output

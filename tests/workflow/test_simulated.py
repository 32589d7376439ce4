"""A network for the accelerator from models.yaml to the database, and again after a change."""

from __future__ import annotations

import csv
import json
import re
from typing import Any

import numpy as np
import pytest

from anole_vta.geometry import Geometry

from .conftest import write_onnx

pytestmark = pytest.mark.workflow

# The first layer runs on the host.
TUNED = ["conv2d 16->16 k3x3 s1 8x8", "conv2d 16->24 k3x3 s1 8x8"]
BUILD = "chain-npu-random"


@pytest.fixture(scope="module")
def built(empty_project: Any) -> Any:
    project = empty_project("simulated")
    write_onnx(project.folder / "chain.onnx", [16, 16, 24])
    save_samples(project, 1)
    project.write(
        {"chain": {"source": "onnx:chain.onnx", "samples": "samples.npy"}},
        targets={"npu": {"kind": "vta", "geometry": {"block_out": 16}}},
        builds=[{"model": "chain", "target": "npu"}],
    )
    outcome = project.complete("--printshellcmds")
    return project, outcome


@pytest.fixture
def project(built: Any, tmp_path: Any) -> Any:
    return built[0].copy(tmp_path)


def save_samples(project: Any, scale: float) -> None:
    samples = scale * np.random.default_rng(0).standard_normal((2, 1, 3, 8, 8))
    np.save(project.folder / "samples.npy", samples.astype(np.float32))


def test_a_network_is_tuned_built_and_evaluated(built: Any) -> None:
    project, outcome = built
    assert project.tuned_labels(outcome) == TUNED
    others = {rule: jobs for rule, jobs in outcome.jobs.items() if rule != "tune"}
    assert others == {"extract": ["chain-npu"], "compile": [BUILD], "evaluate": [BUILD], "merge": [""]}
    ((reference, latency_s, speedup, snr_db),) = project.query(
        "select reference, latency_s, speedup, snr_db from evaluation"
    )
    assert reference == "untuned" and latency_s > 0 and speedup >= 1 and snr_db > 15
    assert project.query("select (select count(*) from trial), (select count(*) from confirmation)") == [(4, 0)]
    # Simulated tasks are tuned in parallel.
    events = re.findall(r"^(?:local)?rule (tune):|\(Rule: (tune)\)", outcome.output, re.MULTILINE)
    assert [("begin" if began else "end") for began, _ in events] == ["begin", "begin", "end", "end"]


@pytest.mark.guard
def test_the_report_is_written_and_rewritten(project: Any) -> None:
    project.complete("report.html")
    page = (project.folder / "report.html").read_text()
    assert "vta_config.json" in page
    project.complete("report.html", "--forcerun", "report_page")
    outcome = project.snakemake("report.html", "--report", "overview.html")
    overview = (project.folder / "overview.html").read_text()
    assert outcome.code == 0 and "all builds and searches" in overview and f"{BUILD}.json" in overview


@pytest.mark.guard
def test_new_samples_compile_again_and_broken_ones_are_reported_in_one_line(project: Any) -> None:
    outcome = project.snakemake()
    assert (outcome.code, outcome.jobs) == (0, {}), outcome.output
    save_samples(project, 8)
    stages = [step.stage for step in project.plan().steps]
    assert "tune" not in stages and stages[-3:] == ["compile", "evaluate", "merge"]
    (project.folder / "samples.npy").write_text("no numbers")
    outcome = project.snakemake()
    assert outcome.code != 0 and outcome.jobs["compile"] == [BUILD] and "tune" not in outcome.jobs
    log = (project.folder / f"logs/compile/{BUILD}.log").read_text()
    (line,) = [line for line in log.splitlines() if line.startswith("anole: ")]
    assert line.startswith("anole: samples.npy: is neither .npy nor .npz: ")
    assert "Traceback" not in log and line in outcome.output


@pytest.mark.guard
def test_a_point_of_an_accelerators_front_can_be_built_by_name(empty_project: Any) -> None:
    project = empty_project("explored")
    write_onnx(project.folder / "chain.onnx", [16, 16, 24])
    models = {"chain": {"source": "onnx:chain.onnx"}}
    targets: dict[str, Any] = {"any": {"kind": "vta", "hardware": "search"}}
    accelerators = {"edge": {"models": ["chain"], "targets": ["any"]}}
    project.write(models, targets=targets, builds=None, accelerators=accelerators)
    steps = [(step.stage, step.subject, step.reason) for step in project.plan().steps]
    assert steps[-2:] == [("accelerator", "edge", "new"), ("merge", "db/tuning.sqlite", "new results")]
    outcome = project.complete()
    assert project.tuned_labels(outcome) == TUNED and outcome.jobs["accelerator"] == ["edge"]
    assert project.plan().steps == ()
    with (project.folder / "accelerators/edge/front.csv").open() as file:
        front = list(csv.DictReader(file))
    written = (project.folder / "accelerators/edge/front.csv").read_text()
    (project.folder / "accelerators/edge/front.csv").unlink()
    assert project.anole("accelerator", "edge").returncode == 0
    assert (project.folder / "accelerators/edge/front.csv").read_text() == written
    ((n_trials, n_presets),) = project.query(
        "select count(*), count(distinct preset) from trial join run on run.key = trial.run_key"
    )
    assert n_trials > 1000 and n_presets == 1
    (point,) = [row for row in front if "time x area" in row["knee"].split(" and ")]
    targets["knee"] = {"kind": "vta", "geometry": point["accelerator"]}
    builds = [{"model": "chain", "target": "knee", "preset": "exhaustive", "trials": 10_000}]
    project.write(models, targets=targets, builds=builds, accelerators=accelerators)
    outcome = project.snakemake()
    assert outcome.code == 0 and "accelerator" not in outcome.jobs, outcome.output
    described = json.loads((project.folder / "builds/chain-knee-exhaustive/build.json").read_text())["accelerator"]
    assert described["cycles"] == int(point["cycles"])
    assert Geometry.from_json(described["geometry"]).name == point["accelerator"]

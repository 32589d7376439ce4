"""The refine stage: candidates are timed within a real network, and receipts of the fastest are written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.compiler.stage import compile_network
from anole.config.entries import ModelSpec
from anole.documents import layout
from anole.documents.build import read_build
from anole.documents.manifest import Manifest, Order, network_path, read_manifest, read_task, write_manifest
from anole.documents.receipt import (
    MeasuredConfig,
    Receipt,
    Refined,
    SharedReceipts,
    read_receipts,
    read_refined,
    write_receipt,
)
from anole.errors import BuildError
from anole.evaluate.timing.turns import TurnSchedule
from anole.extract.stage import extract_model
from anole.measure.device_access import device_access
from anole.refine.candidates import best_candidates
from anole.refine.stage import Effort, refine_network
from anole.refine.stopwatch import Stopwatch
from anole.refine.variants import Compiler, time_variants
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Task

SHORT = Effort(turns=2, seconds=0.0, schedule=TurnSchedule(max_rounds=3, min_burst_s=0.001, pause_s=0.0))


@dataclass(frozen=True)
class Project:
    """A tiny network, extracted, with receipts as the tune stage writes them."""

    folder: Path
    order: Order
    manifest: Manifest
    tasks: list[Task]

    @property
    def manifest_path(self) -> Path:
        return self.folder / "manifest.json"

    @property
    def receipts_path(self) -> Path:
        return self.folder / "receipts.json"

    def of_another_target(self, description: dict[str, Any], manifest_path: Path) -> Order:
        """Write a manifest for another target, and return the order for it."""
        origin = replace(self.manifest.origin, target_description=description)
        write_manifest(manifest_path, replace(self.manifest, origin=origin))
        return replace(self.order, origin=origin)

    def refine(self, n_candidates: int, output: Path) -> Refined:
        refine_network("net", self.order, self.manifest_path, [self.receipts_path], n_candidates, output, SHORT)
        return read_refined(output)


def receipt(task: Task, configs: list[Any]) -> Receipt:
    rivals = tuple(MeasuredConfig(config, 1e-5 * (1 + number)) for number, config in enumerate(configs))
    config, latency_s = (rivals[0].config, rivals[0].latency_s) if rivals else (None, None)
    return Receipt(task.key, "a" * 64, 4, config, latency_s, rivals=rivals)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project with three tasks: with one candidate, with three (the second does not fit), and with none."""
    folder = tmp_path_factory.mktemp("refine")
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", folder / "tiny.py")
    target = get_target(describe_cpu(threads=1))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        model = ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)})
        extract_model(model, "cpu", target.description, folder / "manifest.json", layout.TASKS)
        manifest = read_manifest(folder / "manifest.json")
        tasks = [read_task(layout.task_path(listed.key)) for listed in manifest.tasks]
        order = Order("net", "cpu", manifest.origin, "random", 4, shared=False, seed=0)
        made = Project(folder, order, manifest, tasks)
        stem, twice, head = made.tasks
        space = target.space(twice.workload)
        configs = [space.config(vector) for vector in space.sample(2, np.random.default_rng(0))]
        receipts = [
            receipt(stem, [target.default_config(stem.workload)]),
            receipt(twice, [configs[0], {"tile": 7}, configs[1]]),
            receipt(head, []),
        ]
        write_receipt(made.receipts_path, SharedReceipts(4, tuple(receipts)))
        yield made


@pytest.fixture(scope="module")
def refined(project: Project) -> Refined:
    return project.refine(3, project.folder / "work/net.json")


def test_every_candidate_that_fits_is_timed_within_the_network(project: Project, refined: Refined) -> None:
    one, three, none = (each.refined for each in refined.receipts)
    before = read_receipts([project.receipts_path]).values()
    for tried, each in zip((one, three, none), before, strict=True):
        assert [candidate.config for candidate in tried] == [rival.config for rival in each.rivals]
        assert [candidate.latency_alone_s for candidate in tried] == [rival.latency_s for rival in each.rivals]
    assert [candidate.latency_s is not None for candidate in three] == [True, False, True]
    assert all(0 < candidate.latency_s < 0.1 for candidate in (*one, three[0], three[2]))


def test_the_faster_one_is_chosen_unless_the_network_is_slower(refined: Refined) -> None:
    one, three, _ = (each.refined for each in refined.receipts)
    assert [candidate.chosen for candidate in one] == [True]
    is_other_faster = three[2].latency_s < three[0].latency_s
    assert (refined.ratio is not None) == is_other_faster
    assert refined.kept == (is_other_faster and refined.ratio <= 1)
    assert [candidate.chosen for candidate in three] == [not refined.kept, False, refined.kept]
    latencies_s = refined.latency_s, refined.unrefined_latency_s
    assert all(each > 0 for each in latencies_s) if is_other_faster else latencies_s == (None, None)


@pytest.mark.guard
def test_a_build_is_compiled_with_the_chosen_configs_and_records_them(project: Project, refined: Refined) -> None:
    folder = project.folder / "built"
    compile_network("net", project.order, project.manifest_path, [project.folder / "work/net.json"], folder)
    build = read_build(folder)
    for task, each in zip(build.tasks, refined.receipts, strict=True):
        assert task.refined == each.refined
        if each.config is not None:
            (chosen,) = [candidate for candidate in each.refined if candidate.chosen]
            assert task.config == chosen.config and task.latency_s == chosen.latency_alone_s
    assert [task.matched for task in build.tasks] == ["tuned", "tuned", "default"]


def test_only_the_receipts_remain(project: Project, refined: Refined) -> None:
    assert sorted(path.name for path in (project.folder / "work").iterdir()) == ["net.json", "tasks"]


@pytest.mark.guard
def test_builds_take_turns_and_a_variant_that_cannot_be_timed_is_skipped(project: Project, tmp_path: Path) -> None:
    target, receipts = get_target(describe_cpu(threads=1)), read_receipts([project.receipts_path])
    candidates = {key: [each[0], each[-1]] for key, each in best_candidates(receipts, 3).items()}
    site = device_access(target)
    network = network_path(project.manifest_path)
    compiler = Compiler("net", project.order, project.manifest, network, receipts, candidates, site, tmp_path)
    stem, twice, _ = (task.key for task in project.tasks)
    folder, _ = compiler.compile({stem: 1, twice: 1})
    (folder / "model.so").write_bytes(b"broken")
    with Stopwatch(target, site) as stopwatch:
        rounds = time_variants(compiler, stopwatch, candidates, 1, 0.0)
        assert [len(turns) for turns in rounds] == [1, 0] and set(rounds[0][0]) == {stem, twice}
        folder, _ = compiler.compile({stem: 0, twice: 0})
        rival = Path(shutil.copytree(folder, tmp_path / "rival"))
        compared = stopwatch.compare(folder, rival, SHORT.schedule)
        assert min(compared.latency_s, compared.rival_latency_s, compared.ratio) > 0
        (folder / "model.so").unlink()
        with pytest.raises(BuildError, match=r": cannot be timed: BuildError: .*: model.so cannot be loaded"):
            time_variants(compiler, stopwatch, candidates, 1, 0.0)


def test_an_accelerator_is_not_refined(project: Project, tmp_path: Path) -> None:
    from anole_vta.settings import describe_vta

    order = project.of_another_target(describe_vta(), tmp_path / "manifest.json")
    with pytest.raises(BuildError, match="net: is for vta; only builds for the CPU can be refined"):
        refine_network("net", order, tmp_path / "manifest.json", [], 2, tmp_path / "net.json")


def test_without_the_processor_receipts_are_copied_unchanged(
    project: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = {**describe_cpu(threads=1), "model": "a processor elsewhere"}
    order = project.of_another_target(elsewhere, tmp_path / "manifest.json")
    output = tmp_path / "net.json"
    refine_network("net", order, tmp_path / "manifest.json", [project.receipts_path], 3, output, SHORT)
    assert read_receipts([output]) == read_receipts([project.receipts_path])
    assert "net: is not refined: cpu a processor elsewhere with 1 threads: " in caplog.text


@pytest.mark.parametrize(
    ("lock", "n_candidates", "message"),
    [
        ("f" * 64, 2, "net: is locked; `anole lock --remove net` unlocks it"),
        (None, 0, "net: has refinement disabled; set `refine` to the number of candidates"),
    ],
)
def test_locked_builds_and_builds_that_are_not_set_to_be_refined_are_rejected(
    project: Project, tmp_path: Path, lock: str | None, n_candidates: int, message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        replace(project, order=replace(project.order, lock=lock)).refine(n_candidates, tmp_path / "net.json")

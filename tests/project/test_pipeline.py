from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anole.config.entries import BuildSpec
from anole.documents import layout
from anole.documents.document import as_argument
from anole.documents.lockfile import LockedBuild, LockedTask, Lockfile, write_lockfile
from anole.documents.manifest import ListedTask
from anole.errors import DocumentError, SpecError, StoreError
from anole.extract.stage import extract_versions
from anole.keys import canonical_json
from anole.project.hardware import describe_target
from anole.project.pipeline import Pipeline, find_model
from anole.store.shard import shard_path
from anole.targets import get_target
from anole_vta.settings import describe_vta

from .manifests import leave_manifest, load

MODELS = """
models:
  one: {source: "torch:nets:one", inputs: {x: [1, 3, 8, 8]}}
  two: {source: "torch:nets:two", inputs: {x: [1, 3, 8, 8]}}
targets:
  cpu: {kind: cpu, threads: 1}
  unused: {kind: cpu, threads: 100000}
tuning: {preset: random, trials: 4}
builds:
  - {model: one, target: cpu}
  - {model: two, target: cpu, seed: 1}
  - {model: one, target: cpu, name: again, trials: 8}
  - {model: two, target: cpu, name: plain, trials: 0}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "models.yaml").write_text(MODELS)
    (tmp_path / "nets.py").write_text("def one(): ...\ndef two(): ...\n")
    return tmp_path


@pytest.fixture
def pipeline(project: Path) -> Pipeline:
    return load(project)


def write_extracted(pipeline: Pipeline, build: BuildSpec, keys: list[str], **changes: Any) -> Path:
    """Write the outputs of extraction."""
    tasks = [ListedTask(key, f"task {key[0]}", 1000, 1, ("layer",)) for key in keys]
    return leave_manifest(pipeline, build.model, build.target, tasks, **changes)


@pytest.fixture
def accelerated(project: Path, pipeline: Pipeline) -> Pipeline:
    """Builds for the CPU and for two accelerators, of a model with samples."""
    text = MODELS.replace("  one: {", "  one: {samples: samples.npz, ").replace(
        "  unused:", "  npu: {kind: vta}\n  wide: {kind: vta, geometry: {block_in: 32}}\n  unused:"
    )
    builds = "".join(f"  - {{model: one, target: {target}}}\n" for target in ("npu", "wide"))
    (project / "samples.npz").write_bytes(b"")
    return load(project, text + builds)


def test_geometry_and_samples_change_the_order(accelerated: Pipeline, pipeline: Pipeline) -> None:
    assert accelerated.files("one") == [Path("nets.py"), Path("samples.npz")]
    assert accelerated.files("two") == pipeline.files("one") == [Path("nets.py")]
    npu, wide = (accelerated.order(accelerated.spec.builds[f"one-{name}-random"]) for name in ("npu", "wide"))
    assert npu.origin.target_description != wide.origin.target_description
    entries = [each.order(each.spec.builds["one-cpu-random"]).origin.entry for each in (accelerated, pipeline)]
    assert entries[0] == {**entries[1], "samples": "samples.npz"}


def test_equal_tasks_share_a_run_only_under_equal_tuners(pipeline: Pipeline) -> None:
    one, two, again, _ = pipeline.spec.builds.values()
    assert pipeline.run(one, "k").key == pipeline.run(again, "k").key
    assert pipeline.run(one, "k").key != pipeline.run(two, "k").key
    assert pipeline.run(one, "k").key != pipeline.run(one, "l").key


def test_a_corrupt_shard_is_reported(pipeline: Pipeline) -> None:
    one = pipeline.spec.builds["one-cpu-random"]
    shard = shard_path(pipeline.project / layout.SHARDS, pipeline.run(one, "a" * 64))
    shard.parent.mkdir(parents=True)
    shard.write_text("nonsense\n")
    with pytest.raises(StoreError, match=shard.name):
        pipeline.recorded(one, "a" * 64)


def test_paths_of_receipts_contain_task_run_and_budget(pipeline: Pipeline) -> None:
    one, two, again, plain = pipeline.spec.builds.values()
    write_extracted(pipeline, one, ["a" * 64, "b" * 64])
    write_extracted(pipeline, two, ["a" * 64])
    run = pipeline.run(one, "a" * 64).key
    assert pipeline.receipts(one)[0] == Path("work/tuned", "a" * 64, run, "4.json")
    assert pipeline.receipts(again)[0] == Path("work/tuned", "a" * 64, run, "8.json")
    assert pipeline.receipts(plain) == []


def test_only_targets_in_use_are_described(pipeline: Pipeline) -> None:
    assert list(pipeline.descriptions) == ["cpu"] and pipeline.descriptions["cpu"]["threads"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entry": {"source": "torch:nets:other", "inputs": {}}}, "is stale: entry changed"),
        ({"target_description": {"kind": "cpu"}}, "is stale: target_description changed"),
        ({"versions": {"extract": 0}}, "is stale: versions changed"),
        ({"versions": {}, "entry": {}}, "is stale: entry and versions changed"),
    ],
)
def test_a_stale_manifest_is_rejected_with_the_remedy(pipeline: Pipeline, change: dict[str, Any], message: str) -> None:
    one = pipeline.spec.builds["one-cpu-random"]
    path = write_extracted(pipeline, one, [], **change)
    with pytest.raises(DocumentError, match=message) as caught:
        pipeline.receipts(one)
    assert str(caught.value).startswith(str(path))
    assert "snakemake --forcerun extract" in str(caught.value)


def test_missing_files_are_reported_with_the_remedy_unless_the_task_is_tuned(pipeline: Pipeline) -> None:
    one = pipeline.spec.builds["one-cpu-random"]
    missing = "there is no such file; `snakemake --forcerun extract` writes it again"
    with pytest.raises(DocumentError, match=rf"one/cpu\.json: {missing}"):
        pipeline.receipts(one)
    write_extracted(pipeline, one, ["a" * 64])
    (pipeline.project / layout.task_path("a" * 64)).unlink()
    with pytest.raises(DocumentError, match=rf"{'a' * 64}\.json: {missing}"):
        pipeline.receipts(one)
    receipt = pipeline.project / layout.receipt_path("a" * 64, pipeline.run(one, "a" * 64).key, one.budget.max_trials)
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}")
    assert len(pipeline.receipts(one)) == 1


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("preset: random", "preset: autotvn", "tuning.preset"),
        ("preset: random", "preset: random, explorr: random", "tuning.explorr"),
        ("preset: random", "preset: random, evaluator: {number: 0}", "tuning.evaluator.number"),
        ("seed: 1", "preset: chamelion", "builds[1].preset"),
        ("seed: 1", "trails: 3", "builds[1].trails"),
        ("seed: 1", "explorer: walk", "builds[1].explorer"),
        ("seed: 1", "explorer: {name: annealing, n_step: 3}", "builds[1].explorer.n_step"),
        ("seed: 1", "batch: many", "builds[1].batch"),
    ],
)
def test_mistakes_in_a_tuner_are_reported_with_their_path(project: Path, old: str, new: str, path: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(project, MODELS.replace(old, new))
    assert caught.value.path == path


def test_versions_cover_extraction_and_all_templates(pipeline: Pipeline) -> None:
    conv2d = [
        "conv2d",
        *(f"conv2d.{kind}" for kind in ("depthwise", "gap", "grouped", "idle", "prefetch", "surplus", "winograd")),
    ]
    others = set("extract attention batch_matmul cover dense dense.prefetch sharing tiles weights words".split())
    assert set(extract_versions(pipeline.descriptions["cpu"])) == others.union(conv2d)
    assert set(extract_versions(describe_vta())) == {"extract", "conv2d", "dense"}


def test_loading_a_pipeline_imports_nothing_heavy(project: Path) -> None:
    heavy = "{'torch', 'tvm', 'torchvision', 'xgboost', 'sklearn', 'onnx', 'sqlite_utils'}"
    code = (
        "import sys; from anole.extract.stage import extract_versions; from anole.project.pipeline import Pipeline\n"
        "extract_versions(Pipeline.load('models.yaml').descriptions['cpu'])\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def lock(pipeline: Pipeline, build: BuildSpec, *keys: str, **changes: Any) -> Pipeline:
    """Lock tasks of a build, and reload the project."""
    target = {**pipeline.descriptions[build.target], **changes}
    tasks = {key: LockedTask("layer", {"tile": 1}, None, None) for key in keys}
    write_lockfile(Lockfile(pipeline.project / layout.LOCKFILE, {build.name: LockedBuild(target, tasks)}))
    return load(pipeline.project)


def test_a_locked_task_needs_no_receipt(pipeline: Pipeline) -> None:
    one, _, again, _ = pipeline.spec.builds.values()
    write_extracted(pipeline, one, ["a" * 64, "b" * 64])
    locked = lock(pipeline, one, "a" * 64)
    assert locked.receipts(one) == pipeline.receipts(one)[1:] and locked.receipts(again) == pipeline.receipts(again)
    assert locked.unmeasured(one) == ["task b"]
    assert lock(pipeline, one, "a" * 64, "b" * 64).receipts(one) == []


def test_a_lock_changes_only_the_order_of_its_build(pipeline: Pipeline) -> None:
    one, *others = pipeline.spec.builds.values()
    locked, more = lock(pipeline, one, "a" * 64), lock(pipeline, one, "a" * 64, "b" * 64)
    assert len({canonical_json(as_argument(each.order(one))) for each in (pipeline, locked, more)}) == 3
    assert all(as_argument(pipeline.order(build)) == as_argument(more.order(build)) for build in others)
    assert "lock" not in as_argument(pipeline.order(one)), "as in versions without locks"


def test_the_order_has_the_same_length_for_any_number_of_locked_tasks(pipeline: Pipeline) -> None:
    one = pipeline.spec.builds["one-cpu-random"]
    short, long = (lock(pipeline, one, *(f"{number:064x}" for number in range(n))) for n in (1, 1000))
    assert len(canonical_json(as_argument(short.order(one)))) == len(canonical_json(as_argument(long.order(one))))


def test_a_locked_build_is_not_refined(project: Path) -> None:
    pipeline = load(project, MODELS.replace("trials: 4", "trials: 4, refine: 3"))
    one, two, *_ = pipeline.spec.builds.values()
    locked = lock(pipeline, one, "a" * 64)
    assert [each.candidates(one) for each in (pipeline, locked)] == [3, 0] and locked.candidates(two) == 3


def test_a_lock_for_another_target_is_rejected(pipeline: Pipeline) -> None:
    with pytest.raises(SpecError, match=r"builds.one-cpu-random.target: differs from the target .*: threads is 7, but"):
        lock(pipeline, pipeline.spec.builds["one-cpu-random"], threads=7)


def test_a_locked_build_needs_neither_records_nor_the_hardware(project: Path) -> None:
    text = MODELS.replace("unused:", "gpu: {kind: cuda, arch: sm_90}\n  unused:")
    pipeline = load(project, f"{text}  - {{model: one, target: gpu, name: gpu, trials: 0}}\n")
    description = describe_target(pipeline.spec.targets["gpu"])
    if get_target(description).absence() is None:
        pytest.skip("this machine has the GPU")
    assert list(pipeline.absences) == ["gpu"] and "gpu" in pipeline.spec.builds, "without trials, nothing is missing"
    with pytest.raises(
        SpecError, match=r"the records of all tasks are missing for build gpu; .*`required: false` to skip its"
    ):
        load(project, f"{text}  - {{model: one, target: gpu, name: gpu}}\n")
    tasks = {"a" * 64: LockedTask("layer", {"tile": 1}, None, None)}
    write_lockfile(Lockfile(project / layout.LOCKFILE, {"gpu": LockedBuild(description, tasks)}))
    locked = load(project)
    write_extracted(locked, locked.spec.builds["gpu"], ["a" * 64])
    assert load(project).receipts(locked.spec.builds["gpu"]) == []
    write_extracted(locked, locked.spec.builds["gpu"], ["a" * 64, "b" * 64])
    with pytest.raises(SpecError, match="the records of 1 tasks, such as task b, are missing for build gpu"):
        load(project)


def test_an_int8_target_uses_the_quantized_file(project: Path) -> None:
    text = MODELS.replace("cpu: {kind: cpu, threads: 1}", "cpu: {kind: cpu, threads: 1, precision: int8}")
    pipeline = load(project, text)
    quantized = layout.quantized_path("one")
    assert pipeline.files("one", "cpu") == [quantized] and pipeline.files("one") == [Path("nets.py")]
    assert pipeline.origin("one", "cpu").entry == {"source": f"onnx:{quantized}", "inputs": [["x", [1, 3, 8, 8]]]}
    with pytest.raises(DocumentError, match=r"one\.onnx: there is no such file; `snakemake --forcerun quantize`"):
        find_model(project / "models.yaml", "one", "cpu")

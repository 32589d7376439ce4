from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from anole.documents.build import BuiltKernel, read_build
from anole.documents.described import DescribedTarget, read_described, write_described
from anole.documents.document import encode_with_schema, text_with_checksum
from anole.documents.evaluation import read_evaluation
from anole.documents.manifest import Origin, read_listed_task, read_manifest
from anole.documents.receipt import read_receipts
from anole.errors import DocumentError
from anole.ir.ranges import SizeRange


def edit(path: Path, **change: object) -> Path:
    """Change fields of a document and update its checksum."""
    plain = json.loads(path.read_text())
    del plain["crc"]
    path.write_text(text_with_checksum({**plain, **change}))
    return path


@pytest.fixture
def manifest(project) -> Path:
    return project.extract("resnet18", [(project.CONV, 4)])


def test_tasks_of_a_manifest_can_be_read(project, manifest: Path) -> None:
    document = read_manifest(manifest)
    assert manifest.read_text() == text_with_checksum(encode_with_schema(document))
    assert document.weights == {project.CONV.key: 4}
    assert document.model_spec.source == "torchvision:resnet18"
    assert read_listed_task(manifest, project.CONV.key).to_json() == project.CONV.to_json()


def test_a_manifest_with_another_origin_is_stale(manifest: Path) -> None:
    origin = read_manifest(manifest).origin
    assert read_manifest(manifest, origin).origin == origin
    with pytest.raises(DocumentError) as caught:
        read_manifest(manifest, Origin(origin.entry, {**origin.target_description, "threads": 64}, {"extract": 2}))
    assert str(caught.value) == (
        f"{manifest}: is stale: target_description and versions changed; `snakemake --forcerun extract` writes it again"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": NaN}', "\0"])
def test_a_file_without_an_object_is_rejected(manifest: Path, text: str) -> None:
    manifest.write_text(text)
    with pytest.raises(DocumentError) as caught:
        read_manifest(manifest)
    assert str(caught.value).startswith(f"{manifest}: ")
    assert "`snakemake --forcerun extract` writes it again" in str(caught.value)


def test_a_wrong_checksum_is_rejected(manifest: Path) -> None:
    text = manifest.read_text()
    manifest.write_text(text.replace('"weight": 4', '"weight": 5'))
    with pytest.raises(DocumentError, match=r"its checksum is wrong: the file was changed; `snakemake --forcerun extr"):
        read_manifest(manifest)
    old = {name: value for name, value in json.loads(text).items() if name != "crc"}
    manifest.write_text(json.dumps(old))
    assert read_manifest(manifest).weights, "documents of older versions have no checksum"


def test_missing_damaged_and_mismatched_tasks_are_reported(project, manifest: Path) -> None:
    path = project.folder / "work" / "tasks" / f"{project.CONV.key}.json"
    path.write_text(json.dumps(project.DENSE.to_json()))
    with pytest.raises(DocumentError, match=f"holds a task with the key {project.DENSE.key}"):
        read_listed_task(manifest, project.CONV.key)
    path.write_text('{"workload": {"operator": "lstm"}}')
    with pytest.raises(DocumentError, match="is not a task"):
        read_listed_task(manifest, project.CONV.key)
    path.unlink()
    with pytest.raises(DocumentError, match="there is no such file; `snakemake --forcerun extract` writes it again"):
        read_listed_task(manifest, project.CONV.key)


def test_a_build_of_an_older_version_was_not_refined(project) -> None:
    build = project.compile("resnet18", [(project.CONV, 1, None)])
    tasks = json.loads(build.read_text())["tasks"]
    for task in tasks:
        del task["refined"]
    (task,) = read_build(edit(build, tasks=tasks).parent).tasks
    assert (task.key, task.refined) == (project.CONV.key, ())


def test_ranges_are_read_by_their_former_names(project) -> None:
    build = project.compile("resnet18", [(project.CONV, 1, None)])
    for ranges in ({"n": {"least": 1, "most": 8}}, {"n": {"min": 1, "max": 8}}):
        assert read_build(edit(build, ranges=ranges).parent).ranges == {"n": SizeRange(1, 8)}


@pytest.mark.parametrize(
    ("kernels", "precision"),
    [((None, None), "float32"), (("uint8", None), "int8"), (("bfloat16", "uint8"), "bf16 and int8")],
)
def test_precision_of_a_build_comes_from_its_kernels(project, kernels: tuple[str | None, ...], precision: str) -> None:
    build = read_build(project.compile("resnet18", [(project.CONV, 1, None)]).parent)
    made = tuple(BuiltKernel("kernel", 1, None, (), 1, 1, dtype) for dtype in kernels)
    assert replace(build, kernels=made).precision == precision
    stored = tuple(replace(kernel, weights="int4") for kernel in made)
    assert replace(build, kernels=stored).precision == f"{precision}, weights in int4"


@pytest.mark.parametrize(
    ("place", "text", "problem", "rule"),
    [
        ("64.json", "[]", "holds [], not an object", "tune"),
        ("work/tuned/task/run/64.json", "{}", "task_key is missing", "tune"),
        ("work/tuned_together/net/cpu/key/64.json", '{"receipts": 3}', "receipts is not a list", "tune_together"),
        (
            "work/refined/net-cpu.json",
            '{"receipts": [{"task_key": "x"}]}',
            "task_key is 'x', not of the form",
            "refine",
        ),
    ],
)
def test_a_damaged_receipt_is_reported_with_its_rule(
    tmp_path: Path, place: str, text: str, problem: str, rule: str
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(DocumentError) as caught:
        read_receipts([path])
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert str(caught.value).endswith(f"; `snakemake --forcerun {rule}` writes it again")


@pytest.mark.parametrize("asked", [True, False])
def test_an_evaluation_has_latencies_under_load_only_if_requested(project, asked: bool) -> None:
    path = project.evaluate("resnet18-cpu", loads=project.LOADS if asked else None)
    assert path.read_text() == text_with_checksum(encode_with_schema(read_evaluation(path)))
    assert read_evaluation(path).load_latencies == (project.LOADS if asked else None)


@pytest.fixture
def described(tmp_path: Path) -> Path:
    asked = {"kind": "cpu", "settings": {"threads": 8}, "nodes": {"partition": "amd"}}
    found = DescribedTarget(asked, {"kind": "cpu", "model": "EPYC 9755", "threads": 8}, None, "zen1")
    write_described(tmp_path / "work/targets/zen.json", found)
    return tmp_path / "work/targets/zen.json"


def test_a_described_target_round_trips(described: Path) -> None:
    found = read_described(described)
    assert described.read_text() == text_with_checksum(encode_with_schema(found))
    assert (found.node, found.absence, found.asked["nodes"]) == ("zen1", None, {"partition": "amd"})
    absent = DescribedTarget(found.asked, None, "no GPU", "head")
    write_described(described, absent)
    assert read_described(described) == absent


LISTED = {"key": "a" * 64, "label": "", "flop": 1, "weight": 1, "layers": []}
BUILT = {**LISTED, "config": None, "matched": "tuned", "run_key": None, "latency_s": None, "reason": None}
DAMAGED = [
    ("extract", {"schema": 2}, "found schema 2; this version of Anole reads 1"),
    ("extract", {"schema": None}, "found schema None"),
    ("extract", {"model": 3}, "model is 3, not text"),
    ("extract", {"inputs": [1, 3]}, "inputs is [1, 3], not an object"),
    ("extract", {"tasks": [{**LISTED, "key": "x"}]}, "tasks[0].key is 'x', not of the form"),
    ("extract", {"tasks": [{**LISTED, "weight": 1.5}]}, "tasks[0].weight is 1.5, not an integer"),
    ("compile", {"coverage": {"tuned_flop": 0, "total_flop": 1}}, "coverage.share is missing"),
    ("compile", {"created_at": "now"}, "created_at is 'now', not of the form"),
    ("compile", {"tasks": [{**BUILT, "refined": ["all"]}]}, "tasks[0].refined[0] is 'all', not an object"),
    (
        "compile",
        {"tasks": [{**BUILT, "refined": [{"config": {}, "latency_s": None, "latency_alone_s": 1.0}]}]},
        "].chosen is missing",
    ),
    ("evaluate", {"latencies": [{}]}, "latencies[0].reference is missing"),
    ("describe", {"asked": None}, "asked is None, not an object"),
    ("describe", {"description": []}, "description is [], not an object or null"),
    ("describe", {"absence": 3}, "absence is 3, not text or null"),
    ("describe", {"node": None}, "node is None, not text"),
]


@pytest.mark.parametrize(("stage", "change", "problem"), DAMAGED)
def test_a_damaged_document_is_reported_with_path_and_remedy(
    project, manifest: Path, described: Path, stage: str, change: dict, problem: str
) -> None:
    build, evaluation = project.compile("resnet18", [(project.CONV, 1, None)]), project.evaluate("resnet18-cpu")
    path, read = {
        "extract": (manifest, lambda: read_manifest(manifest)),
        "compile": (build, lambda: read_build(build.parent)),
        "evaluate": (evaluation, lambda: read_evaluation(evaluation)),
        "describe": (described, lambda: read_described(described)),
    }[stage]
    read()
    edit(path, **change)
    with pytest.raises(DocumentError) as caught:
        read()
    assert str(caught.value).startswith(f"{path}: ") and problem in str(caught.value)
    assert str(caught.value).endswith(f"; `snakemake --forcerun {stage}` writes it again")

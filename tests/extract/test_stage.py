"""The manifest of a model, and the changes that affect it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from anole.config.entries import ModelSpec
from anole.documents.manifest import Manifest
from anole.extract.stage import extract_tasks
from anole.targets.cpu.target import CpuTarget
from anole.task import Attention, Conv2d, Dense, Task

DESCRIPTION = {"kind": "cpu", "mcpu": "x86-64", "threads": 2}
TARGET = CpuTarget(DESCRIPTION)


def extract(model: ModelSpec, **settings: str) -> tuple[Manifest, list[Task]]:
    return extract_tasks(model, "cpu", CpuTarget({**DESCRIPTION, **settings}))


def test_equal_layers_are_one_task(project: Path) -> None:
    manifest, tasks = extract(ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)}))
    assert [task.workload for task in tasks] == [
        Conv2d(1, 16, 16, 3, 16, (3, 3), padding=(1, 1, 1, 1)),
        Conv2d(1, 8, 8, 16, 16, (3, 3), padding=(1, 1, 1, 1)),
        Dense(1, 16, 10),
    ]
    assert [listed.layers for listed in manifest.tasks] == [("stem.0",), ("first.0", "second.0"), ("head",)]
    assert [listed.weight for listed in manifest.tasks] == [1, 2, 1]
    assert [listed.key for listed in manifest.tasks] == [task.key for task in tasks]
    assert manifest.flop == sum(listed.flop * listed.weight for listed in manifest.tasks)
    assert manifest.inputs == {"x": [1, 3, 16, 16]}
    assert manifest.origin.entry == {"source": "torch:tiny:residual", "inputs": [["x", [1, 3, 16, 16]]]}
    assert [task.template_version for task in tasks] == [TARGET.template_version(task.workload) for task in tasks]
    assert (manifest.target, manifest.origin.target_description) == ("cpu", DESCRIPTION)


def test_bf16_applies_to_tasks_whose_channels_fill_pairs(project: Path) -> None:
    _, tasks = extract(ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)}), precision="bf16")
    assert [task.label.endswith("bfloat16") for task in tasks] == [False, True, True]


def test_every_kind_of_convolution_and_product(project: Path) -> None:
    _, tasks = extract(ModelSpec("net", "torch:tiny:varied", {"x": (1, 6, 11, 12)}))
    assert [task.workload for task in tasks] == [
        Conv2d(1, 11, 12, 6, 6, (3, 3), padding=(1, 1, 1, 1), groups=6),
        Conv2d(1, 11, 12, 6, 10, (3, 1), strides=(2, 1), groups=2),
        Conv2d(1, 5, 12, 10, 7, (3, 3), padding=(2, 2, 2, 2), dilation=(2, 2)),
        Dense(60, 7, 7),
        Dense(60, 7, 5),
        Attention(1, 60, 60, 7, 5),
    ]


def test_the_current_source_is_used(project: Path) -> None:
    model = ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)})
    manifest, before = extract(model)
    assert extract(model) == (manifest, before)
    # The same size within the same second, which makes byte code of the old source look fresh.
    file = project / "tiny.py"
    file.write_text(file.read_text().replace("nn.Linear(16, 10)", "nn.Linear(16, 12)"))
    _, after = extract(model)
    assert [task.key for task in after[:2]] == [task.key for task in before[:2]]
    assert after[2].workload == Dense(1, 16, 12)


def test_modules_that_the_factory_does_not_import_stay_loaded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__main__", "unrelated"):
        module = ModuleType(name)
        module.__file__ = str(project / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] != "tiny"}
    extract(ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)}))
    assert [name for name, module in before.items() if sys.modules.get(name) is not module] == []


def test_modules_that_the_factory_imports_are_current(project: Path) -> None:
    (project / "width.py").write_text("WIDTH = 8\n")
    (project / "wide.py").write_text(
        "from torch import nn\nfrom width import WIDTH\n\ndef make():\n    return nn.Linear(4, WIDTH)\n"
    )
    model = ModelSpec("net", "torch:wide:make", {"x": (1, 4)})
    assert [task.workload for task in extract(model)[1]] == [Dense(1, 4, 8)]
    (project / "width.py").write_text("WIDTH = 6\n")
    assert [task.workload for task in extract(model)[1]] == [Dense(1, 4, 6)]


def test_resnet18_has_eleven_convolutions_and_a_dense_layer() -> None:
    manifest, tasks = extract(ModelSpec("resnet18", "torchvision:resnet18", {"x": (1, 3, 224, 224)}))
    assert [task.workload.operator for task in tasks] == ["conv2d"] * 11 + ["dense"]
    assert sum(listed.weight for listed in manifest.tasks) == 21
    assert round(manifest.flop / 1e9, 2) == 3.63
    assert manifest.tasks[1].layers[0] == "layer1.0.conv1"

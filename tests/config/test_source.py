from __future__ import annotations

from pathlib import Path

import pytest

from anole.config.source import check_source, find_module, model_files, module_names, torchvision_models
from anole.errors import SpecError
from anole.node import Node


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def refusal(source: str, project: Path) -> str:
    with pytest.raises(SpecError) as caught:
        check_source(Node(source, "models.m.source", "models.yaml"), project)
    return str(caught.value)


def test_torchvision_is_known_by_its_registered_names() -> None:
    names = torchvision_models()
    assert {"resnet18", "squeezenet1_1", "vgg16", "mobilenet_v2", "quantized_resnet18"} <= set(names)
    assert "register_model" not in names


def test_a_factory_is_found_without_running_its_file(tmp_path: Path) -> None:
    write(tmp_path, {"nets/small.py": "raise RuntimeError('imported')\ndef tiny(): ...\n"})
    check_source(Node("torch:nets.small:tiny", "models.m.source", "models.yaml"), tmp_path)
    assert "did you mean 'tiny'?" in refusal("torch:nets.small:tinny", tmp_path)


@pytest.mark.parametrize(
    "source", ["torch:nets", "torch:nets:", "torch::tiny", "torch:nets:a.b", "torch:a b:c", "torch:nets/x.py:tiny"]
)
def test_a_malformed_factory_is_reported_with_the_form(tmp_path: Path, source: str) -> None:
    assert "a torch source is torch:<package.module>:<factory>" in refusal(source, tmp_path)


def test_missing_and_broken_modules_have_different_errors(tmp_path: Path) -> None:
    write(tmp_path, {"broken.py": "def tiny(:\n"})
    assert "found no module 'nets.small'" in refusal("torch:nets.small:tiny", tmp_path)
    assert "found no module 'broken.inner'" in refusal("torch:broken.inner:tiny", tmp_path)
    assert "broken.py, line 1, cannot be parsed" in refusal("torch:broken:tiny", tmp_path)


def test_an_onnx_file_must_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    assert "found no file 'folder.onnx'" in refusal("onnx:folder.onnx", tmp_path)


def test_all_ways_to_define_a_name_are_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "m.py": "import a.b, c as d\nfrom e import f, g as h\n(i, [j, *k]) = l = 1\nclass M: x = 1\n"
            "if x:\n    async def n(): y = 1\nelse:\n    o: int = 3\n"
            "try:\n    from z import p\nexcept ImportError:\n    q = None\nfinally:\n    r = 1\n"
            "for s in []:\n    t = 1\nwith open('') as u:\n    pass\n"
        },
    )
    expected = {*"adfhijklnopqrstu", "M"} - {"a", "d"} | {"a", "d"}
    assert module_names(tmp_path / "m.py") == expected


@pytest.mark.parametrize(
    "text",
    [
        "from zoo import *\n",
        "def __getattr__(name): ...\n",
        "for name in 'ab':\n    globals()[name] = print\n",
        "vars()['a'] = print\n",
        "exec('a = print')\n",
    ],
)
def test_a_module_with_dynamic_names_is_accepted(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"m.py": text})
    assert module_names(tmp_path / "m.py") is None
    check_source(Node("torch:m:anything", "", "models.yaml"), tmp_path)


def test_the_project_comes_before_installed_packages(tmp_path: Path) -> None:
    write(tmp_path, {"click.py": ""})
    assert find_module("click", tmp_path) == tmp_path / "click.py"
    assert find_module("torch.nn.functional", tmp_path) is not None


def test_a_folder_of_data_hides_no_installed_package(tmp_path: Path) -> None:
    write(tmp_path, {"torch/weights.bin": "", "data/net.py": "import torch.nn\ndef tiny(): ...\n"})
    assert find_module("torch.nn", tmp_path) != tmp_path / "torch/nn.py"
    assert model_files("torch:data.net:tiny", tmp_path) == [Path("data/net.py")]


def test_a_factory_depends_on_every_project_file_that_it_imports(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "zoo/__init__.py": "",
            "zoo/net.py": "import torch\nfrom . import blocks\nfrom .deep.more import thing\nimport helper\n",
            "zoo/blocks.py": "import zoo.net\nfrom missing import nothing\n",
            "zoo/deep/more.py": "from ..other import *\n",
            "zoo/other.py": "syntax error here\n",
            "zoo/unrelated.py": "",
            "helper.py": "def f():\n    import late\n",
            "late.py": "",
        },
    )
    files = [str(file) for file in model_files("torch:zoo.net:make", tmp_path)]
    inside = ["blocks", "deep/more", "net", "other"]
    assert files == ["helper.py", "late.py", "zoo/__init__.py", *(f"zoo/{name}.py" for name in inside)]


def test_a_factory_depends_on_source_folders_on_pythonpath(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, sources, installed = tmp_path / "project", tmp_path / "sources", tmp_path / "installed"
    write(project, {"net.py": "import own_layers, library\ndef make(): ...\n"})
    write(sources, {"own_layers.py": "import own_parts\n", "own_parts.py": "", "net.py": ""})
    write(installed, {"library.py": "", "library-1.0.dist-info/METADATA": ""})
    for folder in (installed, sources):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{sources}:{installed}:")
    found = model_files("torch:net:make", project)
    assert sorted(found) == sorted([Path("net.py"), sources / "own_layers.py", sources / "own_parts.py"])


def test_a_factory_does_not_depend_on_an_environment_in_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / ".venv/lib/python3/site-packages"
    write(environment, {"library/__init__.py": ""})
    write(tmp_path, {"net.py": "import library\ndef make(): ...\n", "library/weights.txt": ""})
    monkeypatch.syspath_prepend(environment)
    assert model_files("torch:net:make", tmp_path) == [Path("net.py")]


def test_onnx_depends_on_its_file_and_torchvision_on_none(tmp_path: Path) -> None:
    assert model_files("onnx:nets/a.onnx", tmp_path) == [Path("nets/a.onnx")]
    assert model_files("torchvision:resnet18", tmp_path) == []
    assert model_files("torch:torch.nn:Identity", tmp_path) == []

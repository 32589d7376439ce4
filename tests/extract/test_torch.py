"""Models from torchvision and factories, and what can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from anole.declared.entries import ModelSpec
from anole.errors import ExtractError
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network, run_network

X = {"x": (1, 3, 16, 16)}


def test_random_weights_are_the_same_every_time(project: Path) -> None:
    model = ModelSpec("net", "torch:tiny:residual", X)
    first, second = make_network(model).state_dict(), make_network(model).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_untrained_batch_norms_are_not_trivial() -> None:
    network = make_network(ModelSpec("net", "torchvision:resnet18", X))
    assert network.get_buffer("bn1.running_mean").abs().min() > 0
    assert not network.training


def test_a_factory_that_draws_runs_nothing_where_weights_do_not_matter(project: Path) -> None:
    (project / "drawing.py").write_text(
        "import torch\nfrom anole.extract.weights import draw_weights\nruns = []\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x):\n        runs.append(x)\n        return super().forward(x)\n"
        "def net():\n    made = Net(4, 3)\n    torch.nn.init.zeros_(made.bias)\n"
        "    draw_weights(made, (torch.zeros(1, 4),))\n    made.runs = len(runs)\n    return made\n"
    )
    model = ModelSpec("net", "torch:drawing:net", {"x": (1, 4)})
    assert (make_network(model, "any").runs, make_network(model).runs) == (0, 1)
    assert make_network(model, "any").get_parameter("bias").any()


def test_no_weights_are_fetched_for_what_a_network_is_built_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("weights are fetched")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    network = make_network(ModelSpec("net", "torchvision:lraspp_mobilenet_v3_large", X))
    assert "backbone.0.0.weight" in network.state_dict()


@pytest.mark.parametrize(
    ("source", "inputs", "words"),
    [
        ("torchvision:resnet19", X, ["torchvision:resnet19", "resnet18"]),
        ("torch:nowhere:net", X, ["cannot import nowhere", "No module named 'nowhere'"]),
        ("torch:tiny:missing", X, ["found nothing at tiny:missing", "callable"]),
        ("torch:tiny:__doc__", X, ["found a str at tiny:__doc__", "callable"]),
        ("torch:tiny:number", X, ["returned a int", "torch.nn.Module"]),
        ("torch:tiny:broken", X, ["tiny:broken() failed", "no weights today"]),
        ("torch:tiny", X, ["torch:tiny", "package.module:factory"]),
        ("torch:tiny:residual", {}, ["inputs"]),
        ("torch:tiny:residual", {"x": (2**31, 2**31)}, ["its `inputs` cannot be made: RuntimeError: "]),
        ("torch:tiny:residual", {"x": (1, 4, 16, 16)}, ["does not run on inputs {x: [1, 4, 16, 16]}", "channels"]),
        ("torch:tiny:residual", {"x": (1, 3, 16, 16), "y": (1,)}, ["does not run", "positional argument"]),
        (
            "torch:tiny:unsupported",
            {"x": (4, 4)},
            ["TVM cannot import it: found no converter for", "svd", "other operators"],
        ),
        ("torch:tiny:data_dependent", {"x": (4, 4)}, ["torch.export cannot trace it"]),
    ],
)
def test_mistakes_are_said(
    project: Path,
    source: str,
    inputs: dict[str, tuple[int, ...]],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ExtractError) as caught:
        load_model(ModelSpec("net", source, inputs))
    message = str(caught.value)
    assert message.startswith("model net: ") and "\n" not in message
    assert all(word in message for word in words), message
    assert "def forward" not in capsys.readouterr().err


def test_inputs_may_be_whole_numbers_and_flags(project: Path) -> None:
    shapes = {"ids": (2, 5), "keep": (2, 5)}
    model = ModelSpec("net", "torch:tiny:tokens", shapes, dtypes={"ids": "int64", "keep": "bool"})
    arguments = example_inputs(model)
    assert [(info.name, info.dtype) for info in load_model(model).inputs] == [("ids", "int64"), ("keep", "bool")]
    assert arguments["keep"].any() and not arguments["keep"].all()
    executable = tvm.compile(load_model(model).module, tvm.target.Target("llvm"))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.from_dlpack, arguments.values()))
    (expected,) = run_network(model, make_network(model), arguments)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_folders_of_the_project_hide_no_installed_package(project: Path) -> None:
    (project / "torch").mkdir()
    (project / "layers.py").write_text("import torch\nwidth = 3\n")
    (project / "mine.py").write_text("import torch, layers\nnet = lambda: torch.nn.Linear(4, layers.width)\n")
    model = ModelSpec("net", "torch:mine:net", {"x": (1, 4)})
    assert make_network(model).get_parameter("weight").shape == (3, 4)
    (project / "layers.py").write_text("import torch\nwidth = 5\n")
    assert make_network(model).get_parameter("weight").shape == (5, 4)


@pytest.mark.parametrize("place", ["import", "factory", "forward"])
def test_a_model_that_exits_is_an_error(project: Path, place: str) -> None:
    end = "raise SystemExit(0)"
    (project / "ends.py").write_text(
        f"import torch\nplace = {place!r}\nif place == 'import': {end}\n"
        f"class Net(torch.nn.Module):\n    def forward(self, x):\n        {end}\n"
        f"def net():\n    if place == 'factory': {end}\n    return Net()\n"
    )
    with pytest.raises(ExtractError, match=r"^model net: .*SystemExit: 0"):
        load_model(ModelSpec("net", "torch:ends:net", {"x": (1, 4)}))


def test_a_module_that_cannot_be_imported_says_why(project: Path) -> None:
    (project / "bad.py").write_text("import torch\n1 / 0\n")
    with pytest.raises(ExtractError, match=r"cannot import bad .*ZeroDivisionError"):
        load_model(ModelSpec("net", "torch:bad:factory", X))


def test_outputs_are_told_by_the_trace(project: Path) -> None:
    (project / "outs.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Outs(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(4, 3)\n"
        "    def forward(self, x):\n"
        "        assert type(x) is not torch.Tensor, 'it ran'\n"
        "        return {'whole': x, 'both': [self.layer(x), self.layer.weight + 1], 'places': x.argmax(1)}\n"
    )
    imported = load_model(ModelSpec("net", "torch:outs:Outs", {"x": (2, 4)}))
    assert [(info.name, info.shape, info.dtype) for info in imported.outputs] == [
        ("output_0", (2, 4), "float32"),
        ("output_1", (2, 3), "float32"),
        ("output_2", (3, 4), "float32"),
        ("output_3", (2,), "int64"),
    ]


def test_a_network_may_complete_itself_when_it_runs(project: Path) -> None:
    (project / "lazy.py").write_text("from torch import nn\nnet = lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU())\n")
    imported = load_model(ModelSpec("net", "torch:lazy:net", {"x": (2, 4)}))
    assert [info.shape for info in imported.outputs] == [(2, 3)]

"""Imports of models from torchvision and factories, and their errors."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from anole.config.entries import ModelSpec
from anole.errors import ExtractError
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network

from .conftest import Write
from .passes.building import assert_same_as_torch

X = {"x": (1, 3, 16, 16)}


def test_random_weights_are_the_same_every_time(project: Path) -> None:
    model = ModelSpec("net", "torch:tiny:residual", X)
    first, second = make_network(model).state_dict(), make_network(model).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_untrained_batch_norms_are_not_trivial() -> None:
    network = make_network(ModelSpec("net", "torchvision:resnet18", X))
    assert network.get_buffer("bn1.running_mean").abs().min() > 0
    assert not network.training


def test_no_weights_are_downloaded_for_a_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    download = Mock(side_effect=AssertionError("weights are downloaded"))
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    network = make_network(ModelSpec("net", "torchvision:lraspp_mobilenet_v3_large", X))
    assert "backbone.0.0.weight" in network.state_dict()


@pytest.mark.parametrize(
    ("source", "inputs", "parts"),
    [
        ("torchvision:resnet19", X, ["torchvision:resnet19", "resnet18"]),
        ("torch:nowhere:net", X, ["cannot import nowhere", "No module named 'nowhere'"]),
        ("torch:tiny:missing", X, ["found nothing at tiny:missing", "callable"]),
        ("torch:tiny:__doc__", X, ["found a str at tiny:__doc__", "callable"]),
        ("torch:tiny:number", X, ["returned a int", "torch.nn.Module"]),
        ("torch:tiny:broken", X, ["tiny:broken() failed", "no weights today"]),
        ("torch:tiny", X, ["torch:tiny", "package.module:factory"]),
        ("torch:tiny:residual", {}, ["inputs"]),
        ("torch:tiny:residual", {"x": (2**31, 2**31)}, ["`inputs` cannot be created: RuntimeError: "]),
        ("torch:tiny:residual", {"x": (1, 4, 16, 16)}, ["does not run on inputs {x: [1, 4, 16, 16]}", "channels"]),
        ("torch:tiny:residual", {**X, "y": (1,)}, ["found y, which forward(x) does not have, although it has x"]),
        ("torch:tiny:residual", {"one": (1, 3, 16, 16), "two": (1,)}, ["does not run", "positional argument"]),
        (
            "torch:tiny:unsupported",
            {"x": (4, 4)},
            ["TVM cannot import it: found no converter for", "svd", "other torch operators"],
        ),
        ("torch:tiny:data_dependent", {"x": (4, 4)}, ["torch.export cannot trace it"]),
    ],
)
def test_mistakes_are_reported(
    project: Path, source: str, inputs: dict[str, tuple[int, ...]], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ExtractError) as caught:
        load_model(ModelSpec("net", source, inputs))
    message = str(caught.value)
    assert message.startswith("model net: ") and "\n" not in message
    assert all(part in message for part in parts), message
    assert "def forward" not in capsys.readouterr().err


def test_inputs_may_be_integers_and_booleans(project: Path) -> None:
    shapes = {"ids": (2, 5), "keep": (2, 5)}
    model = ModelSpec("net", "torch:tiny:tokens", shapes, dtypes={"ids": "int64", "keep": "bool"})
    arguments = example_inputs(model)
    assert [(info.name, info.dtype) for info in load_model(model).inputs] == [("ids", "int64"), ("keep", "bool")]
    assert arguments["keep"].any() and not arguments["keep"].all()
    assert_same_as_torch(model, atol=1e-6)


def test_folders_of_the_project_hide_no_installed_package(project: Path) -> None:
    (project / "torch").mkdir()
    (project / "layers.py").write_text("import torch\nwidth = 3\n")
    (project / "mine.py").write_text("import torch, layers\nnet = lambda: torch.nn.Linear(4, layers.width)\n")
    model = ModelSpec("net", "torch:mine:net", {"x": (1, 4)})
    assert make_network(model).get_parameter("weight").shape == (3, 4)
    (project / "layers.py").write_text("import torch\nwidth = 5\n")
    assert make_network(model).get_parameter("weight").shape == (5, 4)


@pytest.mark.parametrize("phase", ["import", "factory", "forward"])
def test_a_model_that_exits_is_an_error(write: Write, phase: str) -> None:
    class_ = "class Net(nn.Module):\n    def {}(self, *x):\n        raise SystemExit(0)\n"
    source = {
        "import": "raise SystemExit(0)",
        "factory": class_.format("__init__"),
        "forward": class_.format("forward"),
    }
    with pytest.raises(ExtractError, match=r"^model net: .*SystemExit: 0"):
        load_model(write(source[phase], 1, 4))


def test_a_module_that_cannot_be_imported_says_why(write: Write) -> None:
    with pytest.raises(ExtractError, match=r"cannot import written .*ZeroDivisionError"):
        load_model(write("1 / 0\n", 1, 4))


OUTPUTS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        assert type(x) is not torch.Tensor, "it ran"
        return {"whole": x, "both": [self.layer(x), self.layer.weight + 1], "places": x.argmax(1)}
"""


def test_outputs_are_taken_from_the_trace(write: Write) -> None:
    imported = load_model(write(OUTPUTS, 2, 4))
    assert [(info.name, info.shape, info.dtype) for info in imported.outputs] == [
        ("output_0", (2, 4), "float32"),
        ("output_1", (2, 3), "float32"),
        ("output_2", (3, 4), "float32"),
        ("output_3", (2,), "int64"),
    ]


def test_a_network_may_initialize_itself_when_it_runs(write: Write) -> None:
    imported = load_model(write("Net = lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU())\n", 2, 4))
    assert [info.shape for info in imported.outputs] == [(2, 3)]


BUFFERS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.layer.register_buffer("calls", torch.zeros(()))
        self.register_buffer("cache", torch.zeros(1, 3, 4))
        self.register_buffer("empty", torch.zeros(1, 0, 4))

    def forward(self, x):
        y = self.layer(x)
        {code}
"""


@pytest.mark.parametrize(
    ("code", "n_outputs"),
    [
        ("return y, None, {'again': (y, [x, y.relu(), None])}, 3", 4),
        ("return torch.arange(3), self.layer.weight, y", 3),
        # Buffers that are written, but whose former values have no effect.
        ("self.count.add_(1); return y", 1),
        ("self.cache[:, :1] = y; return self.cache.sum(1)", 1),
        ("x.add_(1); return x, self.layer(x)", 2),
        # Control flow, shapes and empty tensors that do not depend on the input.
        ("return y[:, :int(torch.arange(4).max())] if torch.ones(2).any().item() else x", 1),
        ("return y.reshape(1, 2, 2, 1).permute(0, -2, -1, 1)", 1),
        ("return y.T.as_strided((2, 2), (1, 1), 1), torch.full_like(y, float('-inf'))", 2),
        ("return torch.cat([self.empty, y.unsqueeze(1)], 1), y[:, :0] @ y[:, :0].T", 2),
        ("return torch.cat(x.split([0, 4], 1)[::-1], 1)", 1),
    ],
)
def test_outputs_and_buffers_of_any_kind(write: Write, code: str, n_outputs: int) -> None:
    model = write(BUFFERS.replace("{code}", code), 1, 4)
    assert len(load_model(model).outputs) == n_outputs
    assert_same_as_torch(model)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return None", "returned no tensor"),
        ("self.count.add_(1); return y * self.count", "depend on what earlier calls wrote to count"),
        ("self.count.add_(1); return y, self.count", "wrote to count"),
        ("self.layer.calls = self.layer.calls + 1; return y * self.layer.calls", "wrote to layer.calls"),
        ("self.cache.copy_(self.cache.roll(1, 1) + y); return self.cache.sum(1)", "wrote to cache"),
        ("return y if y.sum() > 0 else x", "of written: `return y if y.sum() > 0 else x`; Python code cannot use"),
        ("return y.view(3)", "of written: `return y.view(3)`"),
        ("return y[:, :0].argmax(1)", "argmax"),
    ],
)
def test_errors_name_the_buffer_or_the_line(write: Write, code: str, message: str) -> None:
    with pytest.raises(ExtractError, match=re.escape(message)):
        load_model(write(BUFFERS.replace("{code}", code), 1, 4))

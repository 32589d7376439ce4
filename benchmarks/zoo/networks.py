"""The networks of the zoo: from timm, torchvision, transformers, this file, and ONNX files in packages.

The module attribute with the name of a network is its factory, for the source `torch:benchmarks.zoo.networks:<name>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from anole.config.entries import ModelSpec
from anole.config.source import torchvision_models
from benchmarks.common.rows import read_rows

Factory = Callable[[], nn.Module]

TABLES = Path(__file__).parents[1] / "tables"
FAMILIES = TABLES / "timm_families.csv"
"""The smallest network of each timm family, by number of parameters."""


@dataclass(frozen=True)
class Network:
    """A network of the zoo.

    Attributes:
        inputs: the shape of each input, by name.
        make: returns the network, whose weights are randomized later; None if `source` is set.
        source: the source of the network as in models.yaml; None if `make` is set.
        dtypes: the types of the inputs that are not float32.
        values: the inputs of an ONNX file with a constant value.
    """

    inputs: Mapping[str, tuple[int, ...]]
    make: Factory | None = None
    source: str | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def model(self, name: str) -> ModelSpec:
        """Return the entry of the network in models.yaml under a name."""
        source = self.source or f"torch:benchmarks.zoo.networks:{name}"
        return ModelSpec(name, source, self.inputs, dtypes=self.dtypes, values=self.values)


def __getattr__(name: str) -> Factory:
    """Return the factory of a network, with random weights that make its outputs depend on its input."""
    network = zoo().get(name)
    if network is None or network.make is None:
        raise AttributeError(name)
    return partial(_initialize, name, network)


def _initialize(name: str, network: Network) -> nn.Module:
    from anole.extract.torch import example_inputs
    from anole.extract.weights import randomize_weights

    assert network.make is not None
    module = network.make().eval()
    randomize_weights(module, tuple(example_inputs(network.model(name)).values()))
    return module


@cache
def zoo() -> dict[str, Network]:
    """Return all networks from installed packages, by name."""
    return {**_timm(), **_torchvision(), **_transformers(), **_handwritten(), **_packages()}


def _timm() -> dict[str, Network]:
    def make(architecture: str) -> nn.Module:
        import timm

        network: nn.Module = timm.create_model(architecture, pretrained=False)
        return network

    if not _package_files("timm"):
        return {}
    return {
        f"timm_{row['network']}": Network({"x": (1, 3, *[int(row["size"])] * 2)}, partial(make, row["network"]))
        for row in read_rows(FAMILIES)
    }


@cache
def _read_list() -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = yaml.safe_load((TABLES / "zoo.yaml").read_text(encoding="utf-8"))
    return entries


def _torchvision() -> dict[str, Network]:
    shapes = _read_list()["torchvision"]
    assert set(shapes) <= set(torchvision_models())
    return {
        f"torchvision_{name}": Network({"x": tuple(shape)}, source=f"torchvision:{name}")
        for name, shape in shapes.items()
    }


class FirstOutput(nn.Module):
    """A wrapper of a transformer with positional inputs, which returns only the first output."""

    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the first output."""
        output: torch.Tensor = self.network(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]
        return output


def _transformers() -> dict[str, Network]:
    def make(kind: str) -> nn.Module:
        from transformers import AutoConfig, AutoModel

        config = AutoConfig.for_model(kind, **types[kind]["config"])
        if hasattr(config, "use_cache"):
            config.use_cache = False
        network = AutoModel.from_config(config)
        # The first output does not depend on the pooler.
        if getattr(network, "pooler", None) is not None:
            network.pooler = None
        # These have an encoder and a decoder, and only the encoder is a function of one input.
        return FirstOutput(network.encoder if kind in ("t5", "whisper") else network, tuple(types[kind]["inputs"]))

    types = _read_list()["transformers"] if _package_files("transformers") else {}
    return {
        f"transformers_{kind}": Network(
            _shapes(entry), partial(make, kind), dtypes=dict.fromkeys(set(entry["inputs"]) & {"input_ids"}, "int64")
        )
        for kind, entry in types.items()
    }


def _shapes(entry: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in entry["inputs"].items()}


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with a quarter of the width."""

    def __init__(self, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(_double_conv(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in reversed(widths[:-1]))
        self.merge = nn.ModuleList(_double_conv(2 * o, o) for o in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a map of two classes."""
        levels = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            levels.append(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(levels[:-1]), strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        output: torch.Tensor = self.head(x)
        return output


def _double_conv(inputs: int, outputs: int) -> nn.Module:
    convolutions = (nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1))
    return nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU())


class DenseResidual(nn.Module):
    """The dense block of ESRGAN (Wang et al., 2018)."""

    def __init__(self, width: int = 32, growth: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(width + i * growth, growth if i < 4 else width, 3, padding=1) for i in range(5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input plus a fifth of the residual branch."""
        features = [x]
        for layer in self.layers[:-1]:
            features.append(nn.functional.leaky_relu(layer(torch.cat(features, 1)), 0.2))
        output: torch.Tensor = x + 0.2 * self.layers[-1](torch.cat(features, 1))
        return output


class Upscaler(nn.Module):
    """A network like ESRGAN's generator, which upscales images by a factor of four."""

    def __init__(self, width: int = 32, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(DenseResidual(width) for _ in range(blocks)))
        self.up = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the upscaled image."""
        x = self.stem(x)
        x = x + self.blocks(x)
        for layer in self.up:
            x = nn.functional.leaky_relu(layer(nn.functional.interpolate(x, scale_factor=2.0)), 0.2)
        output: torch.Tensor = self.head(x)
        return output


class WaveNet(nn.Module):
    """WaveNet (van den Oord et al., 2016), without its softmax."""

    def __init__(self, width: int = 32, layers: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=1 << i) for i in range(layers))
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.head = nn.Conv1d(width, 64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return 64 values for each sample."""
        x = self.stem(x)
        total = torch.zeros_like(x)
        for gate, mix in zip(self.gates, self.mixes, strict=True):
            filtered, gated = gate(nn.functional.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            residual = mix(torch.tanh(filtered) * torch.sigmoid(gated))
            x, total = x + residual, total + residual
        output: torch.Tensor = self.head(torch.relu(total))
        return output


class Recurrent(nn.Module):
    """A recurrent layer of torch followed by a linear layer."""

    def __init__(self, kind: Callable[..., nn.Module], **settings: Any) -> None:
        super().__init__()
        self.cells = kind(64, 128, batch_first=True, **settings)
        self.head = nn.Linear(256 if settings.get("bidirectional") else 128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return 32 values for each step."""
        output: torch.Tensor = self.head(self.cells(x)[0])
        return output


class TextRecognizer(nn.Module):
    """Convolutions and two recurrent layers, as in networks that recognize text or speech."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.cells = nn.LSTM(32 * 8, 64, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(128, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return 40 values for every four columns."""
        output: torch.Tensor = self.head(self.cells(self.stem(x).permute(0, 3, 1, 2).flatten(2))[0])
        return output


def _handwritten() -> dict[str, Network]:
    steps = {"x": (1, 32, 64)}
    return {
        "unet": Network({"x": (1, 3, 128, 128)}, UNet),
        "esrgan": Network({"x": (1, 3, 48, 48)}, Upscaler),
        "wavenet": Network({"x": (1, 1, 2048)}, WaveNet),
        "lstm": Network(steps, partial(Recurrent, nn.LSTM)),
        "lstm_both_ways": Network(steps, partial(Recurrent, nn.LSTM, num_layers=2, bidirectional=True)),
        "gru": Network(steps, partial(Recurrent, nn.GRU)),
        "rnn": Network(steps, partial(Recurrent, nn.RNN)),
        "spoken_words": Network({"x": (1, 1, 32, 128)}, TextRecognizer),
    }


def _packages() -> dict[str, Network]:
    networks = {}
    for file, entry in _read_list()["files"].items():
        member = next((path for path in _package_files(entry["package"]) if path.name == file), None)
        if member is not None:
            path = Path(str(member.locate())).resolve()
            options = (entry.get("dtypes", {}), entry.get("values", {}))
            networks[f"{entry['package']}_{path.stem}"] = Network(_shapes(entry), None, f"onnx:{path}", *options)
    return networks


def _package_files(package: str) -> list[metadata.PackagePath]:
    """Return the files of a package; empty if it is not installed."""
    try:
        return metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return []

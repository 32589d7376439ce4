"""The papers' networks that torchvision does not have, and an exporter of the ONNX files in models.papers.yaml.

python -m benchmarks.networks.papers    # writes the missing ONNX files
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from anole.config.entries import ModelSpec
from anole.config.yaml_file import read_yaml
from anole.evaluate.engines import export_onnx
from anole.extract.torch import example_inputs, make_network
from anole.node import Node
from benchmarks.common.arguments import make_parser

SPEC = Path(__file__).parents[2] / "examples/models.papers.yaml"


def transformer_encoder() -> nn.Module:
    """Return the encoder of "Attention Is All You Need" (Vaswani et al., 2017): six layers, 512 wide, eight heads."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)


def main() -> None:
    """Export each network with an ONNX source from the torch model of the same name without ``_onnx``."""
    make_parser(__doc__).parse_args()
    models = Node(read_yaml(SPEC), "", str(SPEC)).mapping()["models"].value
    for name, entry in models.items():
        path = Path(entry["source"].removeprefix("onnx:"))
        if not entry["source"].startswith("onnx:") or path.exists():
            continue
        model = ModelSpec.from_json(name, models[name.replace("_onnx", "")])
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"{path}: exported from {model.source}")
        with torch.inference_mode():
            export_onnx(make_network(model), tuple(example_inputs(model).values()), path)


if __name__ == "__main__":
    main()

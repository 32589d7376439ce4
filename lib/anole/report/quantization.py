"""A table of the quantization loss of a model, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anole.quantize.stage import Quantized
from anole.report.tables import plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType


def render_quantized(model: str, quantized: Quantized) -> RenderableType:
    """Render the network's signal-to-noise ratio, the layers in float32, and the other layers in execution order."""
    from rich.console import Group
    from rich.text import Text

    rows = [(each.name, each.operator, f"{each.sqnr_db:.1f}", f"{each.lost_db:.1f}") for each in quantized.loss.layers]
    lines = [Text(f"{model}: {quantized.loss.sqnr_db:.1f} dB with {quantized.method}", style="bold")]
    for layer in quantized.floats:
        gain = "" if layer.before_db is None else f" ({layer.before_db:.1f} dB before)"
        lines.append(Text(f"in float32: {layer.name}{gain}"))
    return Group(*lines, plain_table(("layer", "operator"), ("signal/noise dB", "lost dB"), rows))

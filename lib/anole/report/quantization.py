"""A table of the quantization loss of a model, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anole.quantize.stage import Quantized
from anole.report.tables import table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


def render_quantized(model: str, found: Quantized) -> RenderableType:
    """Render the signal-to-noise ratio of the network, the layers in float32, and all others in execution order."""
    from rich.console import Group
    from rich.text import Text

    rows = [(layer.name, layer.operator, f"{layer.sqnr_db:.1f}", f"{layer.lost_db:.1f}") for layer in found.loss.layers]
    lines = [Text(f"{model}: {found.loss.sqnr_db:.1f} dB by {found.method}", style="bold")]
    for each in found.floats:
        gain = "" if each.before_db is None else f" ({each.before_db:.1f} dB before)"
        lines.append(Text(f"in float32: {each.name}{gain}"))
    return Group(*lines, table_of(("layer", "operator"), ("signal/noise dB", "lost dB"), rows))

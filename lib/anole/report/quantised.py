"""A table of what quantising a model loses, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anole.quantise.stage import Quantised
from anole.report.tables import table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


def render_quantised(model: str, found: Quantised) -> RenderableType:
    """Returns the table: layers in order of execution, and then those that stay in float32."""
    from rich.console import Group
    from rich.text import Text

    rows = [(layer.name, layer.operator, f"{layer.sqnr_db:.1f}", f"{layer.lost_db:.1f}") for layer in found.loss.layers]
    lines = [Text(f"{model}: {found.loss.sqnr_db:.1f} dB by {found.method}", style="bold")]
    lines += [Text(f"in float32: {name}, without which it was {before_db:.1f} dB") for name, before_db in found.floats]
    return Group(*lines, table_of(("layer", "operator"), ("signal/noise dB", "lost dB"), rows))

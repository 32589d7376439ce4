"""Tables in a common style for all commands: plain columns; a narrow terminal truncates only one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text


def plain_table(texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table with a header; columns without content are omitted.

    Args:
        texts: the titles of the text columns; the last of them is truncated on a narrow terminal.
        numbers: the titles of the numeric columns, which follow.
        rows: the cells of each row. The style of the first cell applies to the entire row.
    """
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    titles = (*texts, *numbers)
    columns = [at for at in range(len(titles)) if any(row[at].plain for row in cells)]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for at in columns:
        is_numeric, is_truncated = at >= len(texts), at == len(texts) - 1
        table.add_column(titles[at], justify="right" if is_numeric else "left", no_wrap=not is_truncated)
        for row in cells:
            row[at].no_wrap, row[at].overflow = True, "ellipsis"
    for row in cells:
        table.add_row(*(row[at] for at in columns), style=row[0].style)
    return table


def facts_grid(facts: Iterable[tuple[str, ...]]) -> Table:
    """Return a grid of names and texts; the texts wrap at the width of the terminal."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    for name, *texts in facts:
        table.add_row(Text(f"  {name}", no_wrap=True), *map(Text, texts))
    return table

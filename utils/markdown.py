"""Markdown tables."""

from collections.abc import Iterable, Sequence
from typing import Any


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], texts: int) -> str:
    """A table without a last newline; a cell of None is empty.

    Args:
        texts: how many columns, from the first, hold texts; the others are aligned as numbers.
    """
    rule = ["---"] * texts + ["---:"] * (len(headings) - texts)
    return "\n".join(_line(cells) for cells in (headings, rule, *rows))


def _line(cells: Sequence[Any]) -> str:
    return f"| {' | '.join('' if cell is None else str(cell) for cell in cells)} |"

"""Messages, tables and progress bars on the screen."""

import logging
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

Item = TypeVar("Item")

logger = logging.getLogger("unet3plus")
console = Console(soft_wrap=True)


def setup_logging(verbose: int) -> None:
    """Show the project's messages: warnings always, information unless `verbose` is 0."""
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.disabled = False  # Hydra's "job_logging: disabled" switches off every existing logger
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


def progress(
    items: Iterable[Item], description: str, total: int, unit: str, verbose: int
) -> Iterator[Item]:
    """`items`, with a progress bar unless `verbose` is 0; a log file gets a line every 10 s."""
    interval = 0.1 if sys.stderr.isatty() else 10.0
    yield from tqdm(items, description, total, unit=unit, mininterval=interval, disable=not verbose)


def print_table(title: str, columns: list[str], rows: list[list[object]]) -> None:
    """Print `rows` as a table; numbers are shown with four decimals, None as "n/a"."""
    table = Table(title=title, title_justify="left")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right")
    for row in rows:
        table.add_row(*[_cell(value) for value in row])
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "n/a"
    return f"{value:.4f}" if isinstance(value, float) else str(value)

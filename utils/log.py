"""Logging and tables on the screen."""

import logging

from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

logger = logging.getLogger("unet3plus")
console = Console(soft_wrap=True)


def setup_logging(verbose: int) -> None:
    """Show the project's messages: warnings always, information unless `verbose` is 0."""
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    if not logger.handlers:
        handler = RichHandler(
            console=Console(stderr=True, soft_wrap=True), show_time=False, show_path=False
        )
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


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

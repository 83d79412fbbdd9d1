"""Charts of lines, drawn by matplotlib without a display."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from utils.paths import atomic_path

_PANEL = (5.2, 3.6)  # inches


class Panel(NamedTuple):
    """One pair of axes: its title, and the values of every line by its name in the legend.

    Values may be None where there is none, which interrupts the line.
    """

    title: str
    lines: dict[str, Sequence[float | None]]


def line_chart(
    path: Path, panels: Sequence[Panel], x_label: str, x: Sequence[int], best: int | None = None
) -> Figure:
    """Panels side by side as a PNG file at `path`; returns the figure.

    Args:
        path: of the file.
        panels: each with its own vertical axis.
        x_label: below the horizontal axes.
        x: whole numbers; a line may have fewer values, for the first of them.
        best: where every panel has a dashed line; None for none.
    """
    figure = Figure((_PANEL[0] * len(panels), _PANEL[1]), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name, values in panel.lines.items():
            numbers = [float("nan") if value is None else value for value in values]
            axes.plot(x[: len(numbers)], numbers, marker="o", markersize=3, label=name)
        if best is not None:
            axes.axvline(best, color="0.6", linestyle="--", label="best", zorder=0)
        axes.set(title=panel.title, xlabel=x_label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if len(panel.lines) > 1:
            axes.legend()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})
    return figure

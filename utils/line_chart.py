"""A chart of lines over categories, drawn with OpenCV."""

import math
from collections.abc import Sequence

import cv2
import numpy as np

# Colours (RGB) of the lines, repeated beyond the last
COLOURS = ((31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189))
_WIDTH, _HEIGHT = 800, 500  # px
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 30, 50, 90  # px around the lines
_LEGEND_COLUMNS = 3
_BLACK, _GREY = (0, 0, 0), (215, 215, 215)
_TICKS = 5  # about as many on the vertical axis


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    x_names: Sequence[object],
    lines: dict[str, Sequence[float | None]],
) -> np.ndarray:
    """Lines with a mark at every value, uint8 of shape (500, 800, 3), R, G, B.

    Args:
        title: above the chart.
        x_label: below the horizontal axis.
        y_label: above the vertical axis.
        x_names: the categories, at equal distances.
        lines: a value of at least 0 per category each, by the name in the legend; None where
            there is none, which interrupts the line.
    """
    picture = np.full((_HEIGHT, _WIDTH, 3), 255, np.uint8)
    highest = max((v for values in lines.values() for v in values if v is not None), default=0)
    step = _round_step(highest / _TICKS)
    top = step * max(1, math.ceil(highest / step))

    def place(index: int, value: float) -> tuple[int, int]:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (index + 0.5) / len(x_names)
        return round(x), round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top)

    for tick in range(round(top / step) + 1):
        y = place(0, tick * step)[1]
        cv2.line(picture, (_LEFT, y), (_WIDTH - _RIGHT, y), _GREY)
        _write(picture, f"{tick * step:g}", (_LEFT - 60, y + 5))
    for index, name in enumerate(x_names):
        _write(picture, str(name), (place(index, 0)[0] - 5, _HEIGHT - _BOTTOM + 20))
    _write(picture, title, (_LEFT, 20))
    _write(picture, y_label, (10, _TOP - 12))
    _write(picture, x_label, (_WIDTH // 2 - 40, _HEIGHT - _BOTTOM + 40))

    for number, (name, values) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [None if v is None else place(i, v) for i, v in enumerate(values)]
        for point in filter(None, points):
            cv2.circle(picture, point, 4, colour, cv2.FILLED, cv2.LINE_AA)
        for start, end in zip(points, points[1:], strict=False):
            if start and end:
                cv2.line(picture, start, end, colour, 2, cv2.LINE_AA)
        row, column = divmod(number, _LEGEND_COLUMNS)
        _write(picture, name, (_LEFT + 230 * column, _HEIGHT - 30 + 20 * row), colour)
    return picture


def _round_step(least: float) -> float:
    """The first of 1, 2, 5, 10, 20, … (or 0.5, 0.2, …) that is not below `least`."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _write(
    picture: np.ndarray, text: str, at: tuple[int, int], colour: tuple[int, ...] = _BLACK
) -> None:
    cv2.putText(picture, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 1, cv2.LINE_AA)

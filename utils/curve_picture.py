"""A picture of how a run went: values per epoch as curves."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# RGB; apart for colour-blind readers
COLOURS = ((0, 114, 178), (230, 120, 0), (0, 140, 100), (180, 90, 150))
_INK, _GRID, _FAINT = (50, 50, 50), (228, 228, 228), (120, 120, 120)
_SCALE = 2  # drawn larger and shrunk, which smooths the lines
_WIDTH, _HEIGHT = 520, 340  # px of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 44, 46  # px around the axes


class Panel(NamedTuple):
    """One pair of axes: a title, and the values of every curve by its name, one per epoch."""

    title: str
    curves: dict[str, Sequence[float]]


def curve_picture(panels: Sequence[Panel], marked_epoch: int | None = None) -> np.ndarray:
    """Panels side by side, RGB, uint8 of shape (height, width, 3).

    Args:
        panels: each with its own range of values; epochs count from 1.
        marked_epoch: a dashed line in every panel, named "best" in the first; None for none.
    """
    size = (_WIDTH * len(panels) * _SCALE, _HEIGHT * _SCALE)
    picture = Image.new("RGB", size, "white")
    for number, panel in enumerate(panels):
        _Axes(ImageDraw.Draw(picture), number * _WIDTH, panel).draw(marked_epoch)
    return np.asarray(picture.resize((size[0] // _SCALE, size[1] // _SCALE), Image.LANCZOS))


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers, about `wanted`, that cover the range from `low` to `high`."""
    span = (high - low) or abs(high) or 1.0
    rough = span / max(wanted - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda factor: abs(math.log(factor * power / rough)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


class _Axes:
    """Draws one panel; coordinates in px of the finished picture."""

    def __init__(self, draw: ImageDraw.ImageDraw, x: int, panel: Panel):
        self._draw, self._panel = draw, panel
        self._box = x + _LEFT, _TOP, x + _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        values = [v for curve in panel.curves.values() for v in curve if math.isfinite(v)] or [0.0]
        self._epochs = max((len(curve) for curve in panel.curves.values()), default=1)
        self._ticks = ticks(min(values), max(values))

    def draw(self, marked_epoch: int | None) -> None:
        left, top, right, bottom = self._box
        self._text((left, 12), self._panel.title, 15, "la")
        for value in self._ticks:
            y = self._at(1, value)[1]
            self._line([(left, y), (right, y)], _GRID, 1)
            self._text((left - 8, y), f"{value:g}", 11, "rm")
        for epoch in self._epoch_ticks():
            x = self._at(epoch, 0)[0]
            self._line([(x, bottom), (x, bottom + 4)], _INK, 1)
            self._text((x, bottom + 7), str(epoch), 11, "ma")
        self._text(((left + right) / 2, bottom + 25), "epoch", 11, "ma", _FAINT)
        if marked_epoch is not None:
            self._mark(marked_epoch)
        for curve, colour in zip(self._panel.curves.values(), COLOURS, strict=False):
            self._curve(curve, colour)
        self._line([(left, top), (left, bottom), (right, bottom)], _INK, 1)
        self._legend()

    def _at(self, epoch: float, value: float) -> tuple[float, float]:
        left, top, right, bottom = self._box
        low, high = self._ticks[0], self._ticks[-1]
        share = (epoch - 1) / (self._epochs - 1) if self._epochs > 1 else 0.5
        return left + share * (right - left), bottom - (value - low) / (high - low) * (bottom - top)

    def _epoch_ticks(self) -> list[int]:
        if self._epochs <= 8:
            return list(range(1, self._epochs + 1))
        inner = [int(t) for t in ticks(1, self._epochs, 6) if t == int(t) and 1 < t <= self._epochs]
        return [1, *inner]

    def _curve(self, curve: Sequence[float], colour: tuple) -> None:
        points = [self._at(i, v) for i, v in enumerate(curve, start=1) if math.isfinite(v)]
        if len(points) > 1:
            self._line(points, colour, 2)
        if len(points) <= 30:
            for x, y in points:
                ends = [c * _SCALE for c in (x - 2.5, y - 2.5, x + 2.5, y + 2.5)]
                self._draw.ellipse(ends, fill=colour)

    def _mark(self, epoch: int) -> None:
        x, (_, top, _, bottom) = self._at(epoch, 0)[0], self._box
        for y in range(top, bottom, 8):
            self._line([(x, y), (x, min(y + 4, bottom))], _FAINT, 1)
        self._text((x, top - 3), f"best: {epoch}", 11, "md", _FAINT)

    def _legend(self) -> None:
        if len(self._panel.curves) < 2:
            return
        x = self._box[2]
        for name, colour in reversed(list(zip(self._panel.curves, COLOURS, strict=False))):
            self._text((x, 20), name, 12, "rm")
            x -= self._draw.textlength(name, _font(12)) / _SCALE + 6
            self._line([(x - 18, 20), (x, 20)], colour, 3)
            x -= 32

    def _line(self, points: list, colour: tuple, width: int) -> None:
        scaled = [(x * _SCALE, y * _SCALE) for x, y in points]
        self._draw.line(scaled, fill=colour, width=width * _SCALE, joint="curve")

    def _text(self, at: tuple, text: str, size: int, anchor: str, colour: tuple = _INK) -> None:
        place = at[0] * _SCALE, at[1] * _SCALE
        self._draw.text(place, text, fill=colour, font=_font(size), anchor=anchor)


def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(size * _SCALE)

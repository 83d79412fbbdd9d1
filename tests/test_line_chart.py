"""The chart shows the values it is given, gaps included, and is the same file every time."""

import cv2
import numpy as np

from callbacks.curves import write_curves
from utils.line_chart import Panel, line_chart


def test_lines_have_their_values_and_gaps(tmp_path):
    panels = [Panel("a", {"first": [1.0, None, 3.0], "second": [2.0]}), Panel("b", {})]
    figure = line_chart(tmp_path / "chart.png", panels, "batch size", [1, 2, 4], best=2)
    left, right = figure.axes
    first, second, best = left.lines
    np.testing.assert_array_equal(first.get_xydata(), [[1, 1], [2, np.nan], [4, 3]])
    np.testing.assert_array_equal(second.get_xydata(), [[1, 2]])
    assert list(best.get_xdata()) == [2, 2]
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "first",
        "second",
        "best",
    ]
    assert (left.get_title(), left.get_xlabel(), len(right.lines)) == ("a", "batch size", 1)


def test_curves_of_a_run(tmp_path):
    history = {"loss": [3.0, 2.0], "val_loss": [4.0, 1.0], "dice_coef": [0.1, 0.2]}
    losses, dice, rate = write_curves(tmp_path / "curves.png", history, best_epoch=2).axes
    assert [list(line.get_ydata()) for line in losses.lines[:2]] == [[3, 2], [4, 1]]
    assert [list(line.get_ydata()) for line in dice.lines[:2]] == [[0.1, 0.2], []]
    assert [len(line.get_ydata()) for line in rate.lines[:1]] == [0]
    assert cv2.imread(str(tmp_path / "curves.png")).std() > 5


def test_the_same_values_give_the_same_file(tmp_path):
    for name in ("a.png", "b.png"):
        write_curves(tmp_path / name, {"loss": [1.0, 0.5]}, None)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()

"""The chart: marks where the values are, lines between neighbours, gaps where there is none."""

import numpy as np
import pytest

from utils.line_chart import COLOURS, line_chart

# Categories at 1/6, 3/6 and 5/6 of 690 px from 80; 0 to 50 from row 410 up to row 50
X, BASE, TOP = (195, 425, 655), 410, 50


def chart(values, **others):
    return line_chart("title", "x", "y", [1, 2, 4], {"a": values, **others})


def test_marks_lie_at_their_values():
    picture = chart([10, None, 50], b=[None, 25, None])
    for column, row, colour in ((0, 338, 0), (2, TOP, 0), (1, 230, 1)):
        np.testing.assert_array_equal(picture[row, X[column]], COLOURS[colour])


@pytest.mark.parametrize(("middle", "is_connected"), [(20, True), (None, False)])
def test_lines_join_neighbours_only(middle, is_connected):
    picture = chart([20, middle, 50])
    between = picture[TOP - 10 : BASE - 5, (X[0] + X[1]) // 2]
    assert (between == COLOURS[0]).all(axis=1).any() == is_connected


@pytest.mark.parametrize("values", [[None, None, None], [0, 0, 0]])
def test_nothing_to_show(values):
    assert chart(values).shape == (500, 800, 3)

import numpy as np
import pytest

from utils.lesion_detection import count_detections, match_lesions


def row(*lesions: tuple[int, int]) -> np.ndarray:
    mask = np.zeros((20, 1, 1), bool)
    for start, stop in lesions:
        mask[start:stop] = True
    return mask


# True lesions, predicted lesions; (found, invented, missed) at IoU > 0.5, in both conventions
CASES = {
    "none": ([], [], (0, 0, 0), (0, 0, 0)),
    "exact": ([(3, 6)], [(3, 6)], (1, 0, 0), (1, 0, 0)),
    "missed": ([(3, 6)], [], (0, 0, 1), (0, 0, 1)),
    "invented": ([], [(3, 6)], (0, 1, 0), (0, 1, 0)),
    "apart": ([(3, 6)], [(8, 9)], (0, 1, 1), (0, 1, 1)),
    "half is not enough": ([(0, 4)], [(0, 2)], (0, 1, 1), (0, 1, 1)),
    "more than half": ([(0, 5)], [(0, 3)], (1, 0, 0), (1, 0, 0)),
    "one prediction joins two": ([(0, 4), (5, 9)], [(0, 9)], (2, 0, 0), (1, 0, 1)),
    "two predictions in one": ([(0, 9)], [(0, 4), (5, 9)], (1, 0, 0), (1, 1, 0)),
    "joined but not detected": ([(0, 1), (9, 10)], [(0, 10)], (0, 1, 2), (-1, 2, 3)),
    # Both predictions touch the second lesion; the one with more of it has it, so nothing is joined
    "largest overlap": ([(0, 4), (6, 12)], [(0, 7), (8, 10)], (1, 1, 1), (1, 1, 1)),
    # The official scorer looks predicted lesion 1 up as true lesion 1, and sees no union with it
    "numbers differ": ([(0, 2), (5, 10)], [(5, 20)], (0, 1, 2), (1, 0, 1)),
    # … and predicted lesion 2 as true lesion 2, which it has just found undetected and wiped out
    "wiped out": ([(0, 1), (2, 6), (10, 13)], [(5, 7), (11, 13)], (1, 1, 2), (1, 1, 2)),
}


@pytest.mark.parametrize("convention", ["clear", "lits"])
@pytest.mark.parametrize("name", CASES)
def test_counts(name, convention):
    truth, prediction, *expected = CASES[name]
    matching = match_lesions(row(*truth), row(*prediction))
    assert count_detections(matching, 0.5, convention) == expected[convention == "lits"]


def test_any_overlap_is_enough_at_threshold_zero():
    matching = match_lesions(row((0, 10)), row((9, 20)))
    assert count_detections(matching, 0.0, "clear") == (1, 0, 0)
    assert count_detections(matching, 0.5, "clear") == (0, 1, 1)


def test_lesions_that_touch_by_an_edge_are_two():
    mask = np.zeros((3, 3, 3), bool)
    mask[0, 0, 0] = mask[0, 1, 1] = True
    assert count_detections(match_lesions(mask, mask), 0.5, "clear") == (2, 0, 0)

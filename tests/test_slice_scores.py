"""Scores from counts per slice, by hand."""

import numpy as np
import pytest

from models.inference import most_likely_class
from utils.slice_scores import (
    count_overlap,
    dice_per_case,
    false_positives_on_empty_slices,
    join,
    mean_or_none,
    mean_slice_dice,
    pooled_dice,
    share_of_empty_slices,
    summarise_slices,
)

# Four slices of 1 x 6 px of two cases: truth and prediction
TRUTH = np.uint8([[[1, 1, 1, 2, 2, 0]], [[0, 0, 0, 0, 0, 0]], [[1, 1, 0, 0, 0, 0]], [[0] * 6]])
PREDICTION = np.uint8([[[1, 1, 0, 2, 1, 0]], [[0] * 6], [[0, 1, 1, 1, 0, 0]], [[1, 0, 0, 0, 0, 0]]])
CASES = ["a", "a", "b", "b"]


@pytest.fixture(params=[1, 2, 4], ids=lambda size: f"batches_of_{size}")
def counts(request):
    starts = range(0, 4, request.param)
    return join(
        [
            count_overlap(
                CASES[start : start + request.param],
                TRUTH[start : start + request.param],
                PREDICTION[start : start + request.param],
                classes=3,
            )
            for start in starts
        ]
    )


def test_counts_per_slice_and_class(counts):
    assert counts.cases == ("a", "a", "b", "b")
    np.testing.assert_array_equal(counts.intersection, [[2, 1], [0, 0], [1, 0], [0, 0]])
    np.testing.assert_array_equal(counts.truth, [[3, 2], [0, 0], [2, 0], [0, 0]])
    np.testing.assert_array_equal(counts.prediction, [[3, 1], [0, 0], [3, 0], [1, 0]])


def test_pooled_dice_is_in_0_1_and_gives_no_credit_for_wrong_classes(counts):
    assert pooled_dice(counts) == [2 * 3 / (5 + 7), 2 * 1 / (2 + 1)]


def test_dice_per_case_leaves_out_classes_that_never_occur(counts):
    per_case = dice_per_case(counts)
    assert per_case == {"a": [2 * 2 / 6, 2 * 1 / 3], "b": [2 * 1 / 6, None]}
    assert mean_or_none([values[1] for values in per_case.values()]) == 2 / 3
    assert mean_or_none([None]) is None


def test_the_predecessors_score_rewards_empty_slices():
    truth = np.zeros((10, 4, 4), np.uint8)
    truth[:2] = 1
    counts = count_overlap(["a"] * 10, truth, np.zeros_like(truth), classes=2)
    assert mean_slice_dice(counts) == pytest.approx(0.8)
    assert share_of_empty_slices(counts) == 0.8
    assert pooled_dice(counts) == [0.0]


def test_false_positives_count_all_classes_on_slices_without_truth_and_on_no_others():
    truth = np.uint8([[[0, 0, 0]], [[0, 0, 0]], [[0, 0, 1]]])
    prediction = np.uint8([[[1, 2, 0]], [[0, 0, 1]], [[1, 1, 1]]])
    counts = count_overlap(["a", "a", "b"], truth, prediction, classes=3)
    assert false_positives_on_empty_slices(counts) == 3
    assert summarise_slices(counts)["false_positive_voxels_empty_slices"] == 3
    full = count_overlap(["a"], np.ones((1, 1, 3)), prediction[:1], classes=3)
    assert false_positives_on_empty_slices(full) == 0


def test_a_single_class_is_scored_as_class_1():
    truth, prediction = np.uint8([[[1, 1, 0]]]), np.uint8([[[1, 0, 0]]])
    assert pooled_dice(count_overlap(["a"], truth, prediction, classes=1)) == [2 / 3]


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [([0.4], 0), ([0.5], 0), ([0.51], 1), ([0.2, 0.5, 0.3], 1), ([0.4, 0.4, 0.2], 0)],
)
def test_most_likely_class(probabilities, expected):
    classes = most_likely_class(np.float32(probabilities).reshape(1, 1, 1, -1))
    np.testing.assert_array_equal(classes, [[[expected]]])
    assert classes.dtype == np.uint8

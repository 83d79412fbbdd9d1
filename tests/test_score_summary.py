import json
import math

import numpy as np
import pytest
from scipy.stats import bootstrap

from utils.scan_metrics import compare_masks
from utils.score_summary import METRICS, case_row, statistics, summarise

SPACING = (1.0, 1.0, 10.0)


def row(*lesions: tuple[int, int], liver: tuple[int, int] = (0, 20)) -> np.ndarray:
    labels = np.zeros((20, 1, 1), np.uint8)
    labels[slice(*liver)] = 1
    for start, stop in lesions:
        labels[start:stop] = 2
    return labels


NO_LIVER = row(liver=(0, 0))
PAIRS = [
    (row((0, 5), (10, 11)), row((0, 4))),  # one lesion found (IoU 0.8), one missed
    (row(), row((3, 4), liver=(0, 10))),  # half of the liver, one invented lesion
    (row(), NO_LIVER),
    (NO_LIVER, NO_LIVER),
]


def summary(convention: str, pairs=PAIRS) -> dict:
    cases = [compare_masks(*pair, SPACING, convention, with_tumour=True) for pair in pairs]
    return summarise(cases, convention)


def test_statistics_leave_out_what_is_undefined():
    result = statistics([0.5, None, 0.7, 0.9])
    assert result["mean"] == pytest.approx(0.7)
    assert result["sd"] == pytest.approx(0.2)
    assert (result["cases"], result["excluded"]) == (3, 1)


@pytest.mark.parametrize(("values", "mean"), [([], None), ([None], None), ([0.4], 0.4)])
def test_statistics_of_too_few_values(values, mean):
    result = statistics(values)
    assert (result["mean"], result["sd"], result["interval"]) == (mean, None, None)


def test_interval_is_the_bootstrap_percentile_interval():
    values = np.random.default_rng(1).beta(20, 2, size=28)
    low, high = statistics(values)["interval"]
    expected = bootstrap((values,), np.mean, method="percentile", n_resamples=20_000)
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval), abs=0.002)
    assert statistics(values)["interval"] == [low, high]


def test_liver_by_our_rule():
    liver = summary("clear")["liver"]
    assert liver["dice"]["mean"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert (liver["dice"]["cases"], liver["dice"]["excluded"]) == (3, 1)
    assert (liver["assd"]["cases"], liver["assd"]["excluded"]) == (2, 2)
    assert liver["rvd"]["mean"] == pytest.approx((0 - 0.5 - 1) / 3)
    assert liver["dice_global"] == pytest.approx(2 * 30 / (60 + 30))
    assert liver["truth_ml"]["mean"] == pytest.approx(0.2 * 3 / 4)


def test_liver_by_the_official_rule():
    liver = summary("lits", PAIRS[:3])["liver"]
    assert liver["dice"]["mean"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert liver["rvd"]["mean"] == pytest.approx((0 + 1 + 9001) / 3)
    assert liver["assd"]["mean"] > 3000
    assert liver["assd"]["excluded"] == 0
    assert summary("lits")["liver"]["dice"]["mean"] == pytest.approx((1 + 2 / 3 + 0 + 0) / 4)


def test_tumour_by_our_rule():
    result = summary("clear")
    assert result["tumour"]["dice"]["mean"] == pytest.approx((2 * 4 / 10 + 0) / 2)
    assert result["tumour"]["dice_global"] == pytest.approx(2 * 4 / (6 + 4 + 1))
    assert result["lesions"]["iou_above_0.5"] == {
        "true_positives": 1,
        "false_positives": 1,
        "false_negatives": 1,
        "precision": 0.5,
        "recall": 0.5,
    }
    errors = [6 / 20 - 4 / 20, 0 - 1 / 10, 0]
    assert result["tumour_burden"] == {
        "rmse": pytest.approx(math.sqrt(sum(error**2 for error in errors) / 3)),
        "max_error": pytest.approx(0.1),
        "cases": 3,
        "excluded": 1,
    }


def test_tumour_by_the_official_rule():
    result = summary("lits", PAIRS[:2] + [(row(), row())])
    assert result["tumour"]["dice"]["mean"] == pytest.approx((0.8 + 0 + 1) / 3)
    assert result["tumour"]["voe"]["mean"] == pytest.approx(1 - 4 / 5)  # of the one detected lesion
    assert result["tumour"]["rvd"]["mean"] == pytest.approx((5 - 4) / 4)
    assert summary("lits", PAIRS[:1])["tumour_burden"]["max_error"] == pytest.approx(0.1)
    assert summary("lits", PAIRS[1:2])["tumour_burden"]["max_error"] == pytest.approx(-0.1)
    assert summary("lits", PAIRS[2:3])["tumour_burden"]["rmse"] == pytest.approx(9001)


def test_official_defaults_where_no_lesion_is_detected():
    tumour = summary("lits", PAIRS[1:2])["tumour"]
    assert (tumour["voe"]["mean"], tumour["rvd"]["mean"], tumour["mssd"]["mean"]) == (1, 9001, 9001)


@pytest.mark.parametrize(("convention", "undefined"), [("clear", None), ("lits", 0)])
def test_detection_without_lesions(convention, undefined):
    lesions = summary(convention, [(row(), row())])["lesions"]["iou_above_0.5"]
    assert (lesions["precision"], lesions["recall"]) == (undefined, undefined)


def test_every_metric_is_there_and_fits_json():
    result = summary("clear")
    assert set(METRICS) < set(result["liver"])
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert "tumour" not in summarise([compare_masks(row(), row(), SPACING)], "clear")
    assert summarise([], "clear")["liver"]["dice"]["mean"] is None


def test_case_row():
    scores = compare_masks(*PAIRS[0], SPACING, with_tumour=True)
    cells = case_row("0", scores)
    assert cells["case"] == "0"
    assert cells["liver_dice"] == 1
    assert cells["tumour_dice"] == pytest.approx(0.8)
    assert (cells["lesions_true_positives"], cells["lesions_false_negatives"]) == (1, 1)
    assert cells["tumour_burden_truth"] == 0.3
    assert list(case_row("0", compare_masks(row(), row(), SPACING))) == [
        "case",
        *(f"liver_{name}" for name in METRICS),
    ]

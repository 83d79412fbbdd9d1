"""Scores of a data set out of the scores of its cases."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from utils.dice import dice_from_counts
from utils.mask_metrics import DISTANCES, OFFICIAL_PENALTY, MaskScores
from utils.scan_metrics import DETECTION_THRESHOLDS, RULES, CaseScores, Convention, LesionScores

# Scores of a structure: name in files -> (heading, decimals shown)
METRICS = {
    "dice": ("Dice", 4),
    "voe": ("VOE", 4),
    "rvd": ("RVD", 4),
    "assd": ("ASSD, mm", 2),
    "mssd": ("MSSD, mm", 2),
    "hd95": ("HD95, mm", 2),
    "rmsd": ("RMSD, mm", 2),
    "truth_ml": ("Truth, ml", 1),
    "prediction_ml": ("Prediction, ml", 1),
}
STRUCTURES = ("liver", "tumour")

_RESAMPLES = 10_000
_SEED = 5
_OFFICIAL_DEFAULTS = {"voe": 1.0, **dict.fromkeys(("rvd", *DISTANCES), OFFICIAL_PENALTY)}


def summarise(cases: Sequence[CaseScores], convention: Convention) -> dict[str, Any]:
    """The scores of a data set, ready for JSON; None where a value is undefined.

    Args:
        cases: scores of every case, all made with the same options.
        convention: the one they were made with.

    Returns:
        `convention`, `rule` (its edge cases in words) and `cases` (how many), and:

        - `liver`, and `tumour` where it was scored: for every name in `METRICS` the `statistics` of
          the cases, and `dice_global`, the Dice of the voxels of all cases together. Under `lits`
          the tumour's scores other than Dice and volumes are statistics of the detected lesions.
        - `lesions`, with tumours: per IoU threshold true and false positives, false negatives,
          `precision` and `recall` of all cases together; undefined ones are 0 under `lits`.
        - `tumour_burden`, with tumours: `rmse` over cases of truth minus prediction, and
          `max_error`, the largest absolute difference (under `lits` the largest signed one).
    """
    summary: dict[str, Any] = {
        "convention": convention,
        "rule": RULES[convention],
        "cases": len(cases),
        "liver": _structure([case.liver for case in cases]),
    }
    if tumours := [case.tumour for case in cases if case.tumour is not None]:
        lesions = [case.lesions for case in cases if case.lesions is not None]
        summary["tumour"] = _structure(tumours)
        if convention == "lits":
            detected = [lesion for case in lesions for lesion in case.detected]
            summary["tumour"] |= {
                name: statistics([getattr(lesion, name) for lesion in detected] or [default])
                for name, default in _OFFICIAL_DEFAULTS.items()
            }
        summary["lesions"] = {
            f"iou_above_{threshold:g}": _detection(lesions, threshold, convention)
            for threshold in DETECTION_THRESHOLDS
        }
        summary["tumour_burden"] = _burden_error(lesions, convention)
    return summary


def case_row(name: str, scores: CaseScores) -> dict[str, str | float | int | None]:
    """One case as one flat row of a table: `case`, `liver_dice`, …, `tumour_dice`, …, `lesions_…`.

    Lesion counts are those at IoU > 0.5.
    """
    row: dict[str, str | float | int | None] = {"case": name}
    for structure in STRUCTURES:
        structure_scores = getattr(scores, structure)
        if structure_scores is not None:
            row |= {f"{structure}_{key}": getattr(structure_scores, key) for key in METRICS}
    if scores.lesions is not None:
        counts = scores.lesions.detections[DETECTION_THRESHOLDS[0]]
        row |= {f"lesions_{key}": value for key, value in counts._asdict().items()}
        row |= {
            "tumour_burden_truth": scores.lesions.truth_burden,
            "tumour_burden_prediction": scores.lesions.prediction_burden,
        }
    return row


def statistics(values: Iterable[float | None]) -> dict[str, Any]:
    """How `values` are spread; None means undefined and is left out.

    Returns:
        `mean`; `sd`, with n - 1 in the denominator; `interval`, the 95 % bootstrap interval of the
        mean as [low, high] (percentiles of the means of 10,000 resamples, always drawn alike);
        `cases`, how many values are defined; `excluded`, how many are not. The mean is None without
        values, `sd` and `interval` with fewer than two.
    """
    values = list(values)
    defined = np.array([value for value in values if value is not None], float)
    count = len(defined)
    return {
        "mean": float(defined.mean()) if count else None,
        "sd": float(defined.std(ddof=1)) if count > 1 else None,
        "interval": _bootstrap_interval(defined) if count > 1 else None,
        "cases": count,
        "excluded": len(values) - count,
    }


def _bootstrap_interval(values: np.ndarray) -> list[float]:
    random = np.random.default_rng(_SEED)
    draws = random.integers(len(values), size=(_RESAMPLES, len(values)))
    return np.percentile(values[draws].mean(axis=1), [2.5, 97.5]).tolist()


def _structure(scores: list[MaskScores]) -> dict[str, Any]:
    intersection = sum(score.intersection for score in scores)
    cardinality = sum(score.truth_voxels + score.prediction_voxels for score in scores)
    return {
        "dice_global": dice_from_counts(intersection, cardinality),
        **{name: statistics([getattr(score, name) for score in scores]) for name in METRICS},
    }


def _detection(
    lesions: Sequence[LesionScores], threshold: float, convention: Convention
) -> dict[str, float | None]:
    counts = [case.detections[threshold] for case in lesions]
    found, invented, missed = (sum(column) for column in zip(*counts, strict=True))
    undefined = 0.0 if convention == "lits" else None
    return {
        "true_positives": found,
        "false_positives": invented,
        "false_negatives": missed,
        "precision": found / (found + invented) if found + invented else undefined,
        "recall": found / (found + missed) if found + missed else undefined,
    }


def _burden_error(lesions: Sequence[LesionScores], convention: Convention) -> dict[str, Any]:
    errors = np.array(
        [
            case.truth_burden - case.prediction_burden
            for case in lesions
            if case.truth_burden is not None and case.prediction_burden is not None
        ]
    )
    if not len(errors):
        return {"rmse": None, "max_error": None, "cases": 0, "excluded": len(lesions)}
    largest = errors.max() if convention == "lits" else np.abs(errors).max()
    return {
        "rmse": float(np.sqrt(np.square(errors).mean())),
        "max_error": float(largest),
        "cases": len(errors),
        "excluded": len(lesions) - len(errors),
    }

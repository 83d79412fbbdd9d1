"""Dice scores from counts per slice: pooled, per case, and the predecessor's slice mean."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from utils.dice import dice_from_counts


@dataclass(frozen=True)
class SliceCounts:
    """Pixel counts of slices, int64 arrays of shape (slices, foreground classes).

    Attributes:
        cases: case id of every slice.
        intersection: pixels of a class in truth and prediction.
        truth: pixels of a class in the truth.
        prediction: pixels of a class in the prediction.
    """

    cases: tuple[str, ...]
    intersection: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray


def count_overlap(
    cases: list[str], truth: np.ndarray, prediction: np.ndarray, classes: int
) -> SliceCounts:
    """Counts per slice of two arrays of class ids, (slices, height, width).

    `classes` counts the background unless it is 1; the foreground classes are 1 … classes - 1.
    """
    ids = np.arange(1, max(classes, 2))
    in_truth = truth[..., None] == ids
    in_prediction = prediction[..., None] == ids
    return SliceCounts(
        tuple(cases),
        (in_truth & in_prediction).sum(axis=(1, 2), dtype=np.int64),
        in_truth.sum(axis=(1, 2), dtype=np.int64),
        in_prediction.sum(axis=(1, 2), dtype=np.int64),
    )


def join(parts: list[SliceCounts]) -> SliceCounts:
    """The counts of all `parts` in order."""
    return SliceCounts(
        tuple(case for part in parts for case in part.cases),
        *[
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("intersection", "truth", "prediction")
        ],
    )


def pooled_dice(counts: SliceCounts) -> list[float | None]:
    """Dice per foreground class over all slices together; None where a class never occurs."""
    cardinality = counts.truth.sum(axis=0) + counts.prediction.sum(axis=0)
    return [
        dice_from_counts(int(i), int(c))
        for i, c in zip(counts.intersection.sum(axis=0), cardinality, strict=True)
    ]


def dice_per_case(counts: SliceCounts) -> dict[str, list[float | None]]:
    """Pooled Dice of the slices of every case, in order of first appearance."""
    names = np.array(counts.cases)
    return {
        case: pooled_dice(
            SliceCounts(
                (),
                counts.intersection[names == case],
                counts.truth[names == case],
                counts.prediction[names == case],
            )
        )
        for case in dict.fromkeys(counts.cases)
    }


def mean_or_none(values: list[float | None]) -> float | None:
    """The mean of the values that exist, None when none does."""
    existing = [value for value in values if value is not None]
    return float(np.mean(existing)) if existing else None


def mean_slice_dice(counts: SliceCounts) -> float:
    """The predecessor's score: Dice of all foreground per slice, averaged over slices.

    A slice that is empty in truth and prediction scores 1, which is why an always-empty prediction
    scores `share_of_empty_slices`.
    """
    intersection = counts.intersection.sum(axis=1)
    cardinality = counts.truth.sum(axis=1) + counts.prediction.sum(axis=1)
    return float(np.mean((2 * intersection + 1e-9) / (cardinality + 1e-9)))


def share_of_empty_slices(counts: SliceCounts) -> float:
    """Share of slices without any foreground in the truth."""
    return float(np.mean(counts.truth.sum(axis=1) == 0))


def false_positives_on_empty_slices(counts: SliceCounts) -> int:
    """Foreground pixels, of any class, predicted on slices that have none in the truth.

    What the classification-guided module is there to avoid. 0 where no slice is empty.
    """
    is_empty = counts.truth.sum(axis=1) == 0
    return int(counts.prediction[is_empty].sum())


def summarise_slices(counts: SliceCounts) -> dict[str, Any]:
    """All scores of this module, ready for JSON; lists have one entry per foreground class."""
    pooled, cases = pooled_dice(counts), dice_per_case(counts)
    return {
        "slices": len(counts.cases),
        "cases": len(cases),
        "dice_pooled": pooled,
        "dice_pooled_mean": mean_or_none(pooled),
        "dice_per_case_mean": [mean_or_none(list(v)) for v in zip(*cases.values(), strict=True)],
        "mean_slice_dice": mean_slice_dice(counts),
        "mean_slice_dice_of_empty_prediction": share_of_empty_slices(counts),
        "false_positive_voxels_empty_slices": false_positives_on_empty_slices(counts),
        "per_case": cases,
    }

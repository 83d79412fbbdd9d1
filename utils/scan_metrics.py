"""Two masks of a scan in, LiTS metrics out: liver, tumour and lesion detection of one case.

In a notebook: `compare_mask_files("segmentation-0.nii", "prediction-0.nii").liver.dice`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import nibabel
import numpy as np
from scipy import ndimage

from utils.errors import UserError
from utils.lesion_detection import (
    DetectionCounts,
    LesionMatching,
    count_detections,
    detected_groups,
    match_lesions,
)
from utils.log import logger
from utils.mask_metrics import DISTANCES, OFFICIAL_PENALTY, MaskScores, score_masks
from utils.surface_distance import bounding_box

Convention = Literal["clear", "lits"]

# How each convention treats what is undefined, for people
RULES = {
    "clear": (
        "Empty in truth and prediction: no score, left out of the mean and counted apart. Empty in "
        "one of them: Dice 0, VOE 1, no surface distance. RVD = (prediction - truth) / truth. "
        "Lesions are detected at IoU > 0.5 of matched groups; tumour scores cover the whole tumour."
    ),
    "lits": (
        "The official LiTS scorer: liver empty in truth or prediction, or no voxel of label 1 "
        "predicted: Dice 0, VOE 1, all else 9001. Tumour empty in both: Dice 1. "
        "RVD = (truth - prediction) / prediction. Tumour scores other than Dice are means over "
        "detected lesions only. HD95 is not the scorer's own."
    ),
}
DETECTION_THRESHOLDS = (0.5, 0.0)  # IoU must exceed them


@dataclass(frozen=True)
class LesionScores:
    """The lesions of one case.

    Attributes:
        detections: counts for every threshold of `DETECTION_THRESHOLDS`.
        detected: scores of every group detected at IoU > 0.5; `lits` only, otherwise empty.
        truth_burden, prediction_burden: tumour voxels / liver voxels (label 1 or 2). None where
            the truth has no liver; where the prediction has none, 0 (`clear`) or 9001 (`lits`: no
            voxel of label 1).
    """

    detections: dict[float, DetectionCounts]
    detected: list[MaskScores]
    truth_burden: float | None
    prediction_burden: float | None


@dataclass(frozen=True)
class CaseScores:
    """The scores of one case; `tumour` and `lesions` are None unless they were asked for."""

    liver: MaskScores
    tumour: MaskScores | None = None
    lesions: LesionScores | None = None


def compare_masks(
    truth: np.ndarray,
    prediction: np.ndarray,
    spacing: Sequence[float],
    convention: Convention = "clear",
    with_tumour: bool = False,
) -> CaseScores:
    """Score a predicted mask against the true one.

    Args:
        truth, prediction: labels of one 3-D shape: 0 background, 1 liver, 2 tumour. The liver is
            every label from 1 up, so a mask of the liver alone may be boolean.
        spacing: size of a voxel along each axis, mm.
        convention: what happens to empty masks and how lesions are counted, see `RULES`; "lits"
            gives the numbers of the official LiTS scorer.
        with_tumour: also score label 2 and its lesions.

    Raises:
        UserError: shapes differ or are not 3-D, the spacing is not three positive numbers, or the
            convention is unknown.
    """
    _check(truth, prediction, spacing, convention)
    liver_box = bounding_box((truth >= 1) | (prediction >= 1))
    truth, prediction = truth[liver_box], prediction[liver_box]
    truth_liver, prediction_liver = truth >= 1, prediction >= 1
    has_prediction = (prediction == 1).any() if convention == "lits" else prediction_liver.any()
    if not has_prediction:
        prediction_liver = np.zeros_like(prediction_liver)
    liver = score_masks(truth_liver, prediction_liver, spacing, convention)
    if not with_tumour:
        return CaseScores(liver)
    tumour_box = bounding_box((truth == 2) | (prediction == 2))
    truth_tumour, prediction_tumour = truth[tumour_box] == 2, prediction[tumour_box] == 2
    tumour = score_masks(truth_tumour, prediction_tumour, spacing, convention)
    matching = match_lesions(truth_tumour, prediction_tumour)
    lesions = LesionScores(
        {
            threshold: count_detections(matching, threshold, convention)
            for threshold in DETECTION_THRESHOLDS
        },
        _score_detected(matching, spacing) if convention == "lits" else [],
        *_burdens(liver, tumour, convention),
    )
    if convention == "lits":
        tumour = _official_tumour(tumour, lesions.detected)
    return CaseScores(liver, tumour, lesions)


def compare_mask_files(
    truth_path: str | Path,
    prediction_path: str | Path,
    convention: Convention = "clear",
    with_tumour: bool = False,
) -> CaseScores:
    """`compare_masks` on two NIfTI files, voxel by voxel, with the truth's voxel size.

    Like the official scorer it does not reorient: a warning says so where the two headers place
    the voxels differently.

    Raises:
        UserError: a file is missing or unreadable, or the masks do not fit each other.
    """
    truth, prediction = (_load(Path(path)) for path in (truth_path, prediction_path))
    if not np.allclose(truth.affine, prediction.affine, atol=0.01):
        logger.warning(
            "%s: its header places the voxels differently from %s; they are compared as stored",
            prediction_path,
            truth_path,
        )
    return compare_masks(
        np.asanyarray(truth.dataobj),
        np.asanyarray(prediction.dataobj),
        [float(size) for size in truth.header.get_zooms()[:3]],
        convention,
        with_tumour,
    )


def largest_component(labels: np.ndarray) -> np.ndarray:
    """`labels` with everything set to 0 outside the largest 3-D component of the liver.

    The liver is every label from 1 up; its voxels are connected by their faces. Of several largest
    components the first stays. An empty mask stays empty.
    """
    kept = np.zeros_like(labels)
    box = bounding_box(labels >= 1)
    components, count = ndimage.label(labels[box] >= 1)
    if count:
        sizes = np.bincount(components.ravel())
        largest = components == sizes[1:].argmax() + 1
        kept[box] = np.where(largest, labels[box], 0)
    return kept


def _check(
    truth: np.ndarray, prediction: np.ndarray, spacing: Sequence[float], convention: str
) -> None:
    if truth.shape != prediction.shape or truth.ndim != 3:
        raise UserError(
            f"masks of shape {truth.shape} and {prediction.shape}: expected two of one 3-D shape"
        )
    if len(spacing) != 3 or not all(np.isfinite(size) and size > 0 for size in spacing):
        raise UserError(f"spacing {tuple(spacing)}: expected three positive sizes in mm")
    if convention not in RULES:
        raise UserError(f"convention {convention!r}: expected one of {', '.join(RULES)}")


def _score_detected(matching: LesionMatching, spacing: Sequence[float]) -> list[MaskScores]:
    # The official scorer skips a case whose count of true positives (which may be too low) is 0
    if count_detections(matching, 0.5, "lits").true_positives <= 0:
        return []
    return [
        score_masks(
            np.isin(matching.truth, group.truth_ids),
            np.isin(matching.prediction, group.prediction_ids),
            spacing,
            "lits",
        )
        for group in detected_groups(matching, 0.5, "lits")
    ]


def _official_tumour(tumour: MaskScores, detected: list[MaskScores]) -> MaskScores:
    """Dice of the whole tumour, 1 where there is none; all else as means over detected lesions."""
    is_empty = tumour.truth_voxels == tumour.prediction_voxels == 0
    means: dict[str, Any] = {
        name: float(np.mean([getattr(lesion, name) for lesion in detected])) if detected else None
        for name in ("voe", "rvd", *DISTANCES)
    }
    return replace(tumour, dice=1.0 if is_empty else tumour.dice, **means)


def _burdens(
    liver: MaskScores, tumour: MaskScores, convention: str
) -> tuple[float | None, float | None]:
    if not liver.truth_voxels:
        return None, None
    without_liver = OFFICIAL_PENALTY if convention == "lits" else 0.0
    predicted = liver.prediction_voxels
    return (
        tumour.truth_voxels / liver.truth_voxels,
        tumour.prediction_voxels / predicted if predicted else without_liver,
    )


def _load(path: Path) -> nibabel.Nifti1Image:
    try:
        return nibabel.load(path)
    except (OSError, nibabel.filebasedimages.ImageFileError) as error:
        raise UserError(f"{path}: cannot be read as a NIfTI mask ({error})") from None

"""Which lesions were found: matching the connected components of two tumour masks.

Lesions are 3-D components of voxels that share a face. One predicted lesion may cover several true
ones and the other way round, so groups are matched, by the rules of the LiTS challenge:

1. True lesions that overlap most with the same predicted lesion form one group.
2. Every predicted lesion that touches a true one joins the group it overlaps most; the predicted
   lesions of a group count as one.
3. A group is detected if the intersection over union (IoU) of its two sides exceeds a threshold.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import ndimage


class LesionGroup(NamedTuple):
    """True and predicted lesions that belong together: their numbers, and voxels in common."""

    truth_ids: list[int]
    prediction_ids: list[int]
    intersection: int


@dataclass(frozen=True)
class LesionMatching:
    """The lesions of one scan.

    Attributes:
        truth, prediction: the two masks with their lesions numbered from 1.
        overlaps: voxels that true lesion i and predicted lesion j have in common, at [i, j].
        truth_sizes, prediction_sizes: voxels of every lesion, at its number.
        groups: what was matched, in the order of the predicted lesions.
    """

    truth: np.ndarray
    prediction: np.ndarray
    overlaps: np.ndarray
    truth_sizes: np.ndarray
    prediction_sizes: np.ndarray
    groups: list[LesionGroup]


class DetectionCounts(NamedTuple):
    """Lesions found, invented and missed."""

    true_positives: int
    false_positives: int
    false_negatives: int


def match_lesions(truth: np.ndarray, prediction: np.ndarray) -> LesionMatching:
    """Match the lesions of two boolean masks of one 3-D shape."""
    truth_lesions, truth_count = ndimage.label(truth)
    prediction_lesions, prediction_count = ndimage.label(prediction)
    common = truth & prediction
    overlaps = np.zeros((truth_count + 1, prediction_count + 1), np.int64)
    np.add.at(overlaps, (truth_lesions[common], prediction_lesions[common]), 1)
    return LesionMatching(
        truth_lesions,
        prediction_lesions,
        overlaps,
        np.bincount(truth_lesions.ravel(), minlength=truth_count + 1),
        np.bincount(prediction_lesions.ravel(), minlength=prediction_count + 1),
        _group(overlaps),
    )


def _group(overlaps: np.ndarray) -> list[LesionGroup]:
    truth_ids_by_owner: dict[int, list[int]] = {}
    for truth_id in np.flatnonzero(overlaps.any(axis=1)):
        owner = int(overlaps[truth_id].argmax())
        truth_ids_by_owner.setdefault(owner, []).append(int(truth_id))
    truth_groups = list(truth_ids_by_owner.values())
    group_overlaps = np.array([overlaps[ids].sum(axis=0) for ids in truth_groups])
    prediction_ids_by_group: dict[int, list[int]] = {}
    for prediction_id in np.flatnonzero(overlaps.any(axis=0)):
        best = int(group_overlaps[:, prediction_id].argmax())
        prediction_ids_by_group.setdefault(best, []).append(int(prediction_id))
    return [
        LesionGroup(truth_groups[group], ids, int(group_overlaps[group, ids].sum()))
        for group, ids in prediction_ids_by_group.items()
    ]


def detected_groups(
    matching: LesionMatching, threshold: float, convention: str
) -> list[LesionGroup]:
    """The groups whose IoU is strictly above `threshold`.

    The official scorer (`convention="lits"`) takes the union with another region than the group's
    own prediction: it looks the predicted side up under the number of the predicted lesion in a map
    that is numbered by true lesions. Its IoU is right only where the two numbers happen to agree,
    and is otherwise usually too high.
    """
    region_by_truth_id = {group.truth_ids[0]: group.prediction_ids for group in matching.groups}
    detected = []
    for group in matching.groups:
        predicted = group.prediction_ids
        if convention == "lits":
            predicted = region_by_truth_id.get(predicted[0], [])
        union = (
            matching.truth_sizes[group.truth_ids].sum()
            + matching.prediction_sizes[predicted].sum()
            - matching.overlaps[np.ix_(group.truth_ids, predicted)].sum()
        )
        if group.intersection / union > threshold:
            detected.append(group)
        else:
            del region_by_truth_id[group.truth_ids[0]]
    return detected


def count_detections(
    matching: LesionMatching, threshold: float, convention: str
) -> DetectionCounts:
    """Lesions found at an IoU above `threshold`.

    `clear`: a true lesion is found if its group is detected, a predicted lesion is false if its
    group is not. `lits`, as the official scorer counts: a detected group is one true positive
    however many lesions it joins, an undetected group takes the number of its true lesions less
    one away again (so that the count may even fall below 0), and every other lesion is false.
    """
    groups, detected = matching.groups, detected_groups(matching, threshold, convention)
    truth_count, prediction_count = (size - 1 for size in matching.overlaps.shape)
    if convention == "lits":
        merged_away = sum(len(g.truth_ids) - 1 for g in groups if g not in detected)
        found = len(detected) - merged_away
        invented = prediction_count - found
    else:
        found = sum(len(group.truth_ids) for group in detected)
        invented = prediction_count - sum(len(group.prediction_ids) for group in detected)
    return DetectionCounts(found, invented, truth_count - found)

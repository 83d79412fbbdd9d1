"""One structure of one scan: how well a predicted mask agrees with the true one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from utils.dice import dice_from_counts
from utils.surface_distance import symmetric_distances

# What the official LiTS scorer puts in place of a value that an empty mask leaves undefined
OFFICIAL_PENALTY = 9001.0

DISTANCES = ("assd", "mssd", "hd95", "rmsd")


@dataclass(frozen=True)
class MaskScores:
    """The agreement of two masks R (truth) and P (prediction); None where a value is undefined.

    Attributes:
        dice: 2|P∩R| / (|P|+|R|), 0 to 1.
        voe: volume overlap error 1 - |P∩R| / |P∪R|, 0 to 1.
        rvd: relative volume difference, (|P|-|R|) / |R|: positive where too much was marked. The
            official LiTS scorer has it the other way round, (|R|-|P|) / |P|.
        assd, mssd, hd95, rmsd: surface distances in mm, see `surface_distance`.
        truth_ml, prediction_ml: volumes in ml.
        intersection, truth_voxels, prediction_voxels: voxel counts, for sums over a data set.
    """

    dice: float | None
    voe: float | None
    rvd: float | None
    assd: float | None
    mssd: float | None
    hd95: float | None
    rmsd: float | None
    truth_ml: float
    prediction_ml: float
    intersection: int
    truth_voxels: int
    prediction_voxels: int


def score_masks(
    truth: np.ndarray, prediction: np.ndarray, spacing: Sequence[float], convention: str
) -> MaskScores:
    """Compare two boolean masks of one 3-D shape; `spacing` is the voxel size in mm.

    The empty case follows `convention`:

    - `clear`: both empty: all undefined. One empty: Dice 0, VOE 1, RVD by its formula (-1 where the
      prediction is empty, undefined where the truth is), distances undefined.
    - `lits`: either or both empty: Dice 0, VOE 1, RVD and distances 9001.
    """
    intersection = int(np.count_nonzero(truth & prediction))
    truth_voxels, prediction_voxels = (int(np.count_nonzero(m)) for m in (truth, prediction))
    union = truth_voxels + prediction_voxels - intersection
    dice = dice_from_counts(intersection, truth_voxels + prediction_voxels)
    voe = 1 - intersection / union if union else None
    rvd = (prediction_voxels - truth_voxels) / truth_voxels if truth_voxels else None
    distances: Mapping[str, float | None] = dict.fromkeys(DISTANCES)
    if truth_voxels and prediction_voxels:
        distances = symmetric_distances(truth, prediction, spacing)
    if convention == "lits":
        if truth_voxels and prediction_voxels:
            rvd = (truth_voxels - prediction_voxels) / prediction_voxels
        else:
            dice, voe, rvd = 0.0, 1.0, OFFICIAL_PENALTY
            distances = dict.fromkeys(DISTANCES, OFFICIAL_PENALTY)
    voxel_ml = float(np.prod(spacing)) / 1000
    return MaskScores(
        dice=dice,
        voe=voe,
        rvd=rvd,
        **distances,
        truth_ml=truth_voxels * voxel_ml,
        prediction_ml=prediction_voxels * voxel_ml,
        intersection=intersection,
        truth_voxels=truth_voxels,
        prediction_voxels=prediction_voxels,
    )

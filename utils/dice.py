"""Dice from counts, for evaluation without Keras."""


def dice_from_counts(intersection: float, cardinality: float) -> float | None:
    """2 I / (P + T), from 0 to 1.

    None when nothing is true and nothing is predicted: the class then says nothing about the
    model, so it is left out of means (`losses/metrics.py` has the same rule). Predicted but never
    true, or true but never predicted, gives 0. Example: 80 px in common, 120 predicted and 100 true
    give 2 · 80 / 220 = 0.727.

    Args:
        intersection: I, pixels (or voxels) both predicted and true.
        cardinality: P + T, pixels predicted plus pixels true.
    """
    return 2 * float(intersection) / float(cardinality) if cardinality else None

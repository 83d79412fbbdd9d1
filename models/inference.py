"""From probabilities to class ids."""

import numpy as np


def most_likely_class(probabilities: np.ndarray) -> np.ndarray:
    """Class ids, uint8 of shape (B, H, W), of probabilities (B, H, W, classes).

    With one class a pixel is foreground above 0.5 strictly; otherwise the greatest probability
    wins, the lower id on a tie.
    """
    if probabilities.shape[-1] == 1:
        return (probabilities[..., 0] > 0.5).astype(np.uint8)
    return probabilities.argmax(axis=-1).astype(np.uint8)

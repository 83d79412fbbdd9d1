"""The Dice coefficient, accumulated over an epoch."""

from typing import Any

import keras
from keras import KerasTensor, ops

SPACE = (1, 2)  # axes


@keras.saving.register_keras_serializable(package="unet3plus")
class DiceCoefficient(keras.metrics.Metric):
    """Dice per foreground class pooled over all pixels since the last reset, mean over the classes.

    For each class, 2 I / (P + T): P pixels predicted, T pixels true, I pixels both. The sums run
    over whole samples before the one division, so the result does not depend on how the samples are
    split into batches or over replicas, and slices without the organ only count through their
    false positives. Always in [0, 1].

    Predictions are made hard first: more than 0.5 with one class, else the most probable class
    (the lower one of equals).

    Empty classes: a class that is neither true nor predicted anywhere is left out of the mean, and
    with nothing at all left the result is 1. A class that is predicted but never true, or true but
    never predicted, scores 0.

    Example: 10 slices, 8 without liver and 2 with 100 px each; a model that predicts nothing scores
    2 · 0 / (0 + 200) = 0, where a mean over slices would give 0.8. One that finds 80 px in each of
    the two and 40 px in an empty slice scores 2 · 160 / (200 + 200) = 0.8.

    `update_state` takes one-hot targets and probabilities, (batch, height, width, classes), and
    optionally one weight per sample, (batch,): 0 leaves a padded sample out.

    Args:
        classes: Number of classes; 1, or several with the background as class 0.
        name: Name in logs.
        dtype: Type of the result. The sums are float64 under TensorFlow, as an epoch has more
            pixels than float32 counts exactly (2^24), and float32 under the other backends.
    """

    def __init__(self, classes: int, name: str = "dice_coef", dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.classes = classes
        self.sum_dtype = "float64" if keras.backend.backend() == "tensorflow" else "float32"
        sums = {"shape": (max(classes - 1, 1),), "initializer": "zeros", "dtype": self.sum_dtype}
        self.intersection = self.add_variable(name="intersection", **sums)
        self.cardinality = self.add_variable(name="cardinality", **sums)

    def update_state(
        self, y_true: KerasTensor, y_pred: KerasTensor, sample_weight: KerasTensor | None = None
    ) -> None:
        """Add the counts of a batch."""
        truth = ops.cast(y_true, "float32")[..., min(1, self.classes - 1) :]
        prediction = self._predicted_classes(ops.cast(y_pred, "float32"))
        for total, pixels in (
            (self.intersection, truth * prediction),
            (self.cardinality, truth + prediction),
        ):
            counts = ops.cast(ops.sum(pixels, axis=SPACE), self.sum_dtype)
            if sample_weight is not None:
                counts *= ops.cast(sample_weight, self.sum_dtype)[:, None]
            total.assign_add(ops.sum(counts, axis=0))

    def _predicted_classes(self, y_pred: KerasTensor) -> KerasTensor:
        """0 or 1 for each foreground class, (batch, height, width, foreground classes)."""
        if self.classes == 1:
            return ops.cast(y_pred > 0.5, "float32")
        return ops.one_hot(ops.argmax(y_pred, axis=-1), self.classes)[..., 1:]

    def result(self) -> KerasTensor:
        """The Dice coefficient of all samples since the last reset, a scalar."""
        cardinality = ops.convert_to_tensor(self.cardinality)
        occurs = cardinality > 0
        dice = 2 * self.intersection / ops.where(occurs, cardinality, 1)
        classes = ops.sum(ops.cast(occurs, self.sum_dtype))
        mean = ops.sum(dice) / ops.maximum(classes, 1)
        return ops.cast(ops.where(classes > 0, mean, 1), self.dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {**super().get_config(), "classes": self.classes}

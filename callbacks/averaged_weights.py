"""Validates, and keeps as best, the moving average of the weights instead of the weights."""

from collections.abc import Sequence

import keras
from keras import ops


class AveragedWeights(keras.callbacks.Callback):
    """Has the averages in the model from the start of an epoch's validation to its own turn.

    Among the callbacks it comes after those that show or keep what was validated, and before those
    that keep what training goes on with. Values are exchanged as they are, without rounding.

    Args:
        pairs: every weight and moving statistic with its average; none for a model without them.
    """

    def __init__(self, pairs: Sequence[tuple[keras.Variable, keras.Variable]]):
        super().__init__()
        self._pairs, self._are_in_model = pairs, False

    def on_test_begin(self, logs: dict | None = None) -> None:
        """Put the averages into the model."""
        if not self._are_in_model:
            self._exchange()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Put the weights back."""
        if self._are_in_model:
            self._exchange()

    def _exchange(self) -> None:
        with self.model.distribute_strategy.scope():
            for variable, average in self._pairs:
                value = ops.convert_to_numpy(variable)
                variable.assign(average)
                average.assign(value)
        self._are_in_model = not self._are_in_model

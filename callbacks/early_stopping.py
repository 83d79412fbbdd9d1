"""Early stopping that goes on counting where an interrupted run has stopped."""

from typing import Any

import keras


class EarlyStopping(keras.callbacks.EarlyStopping):
    """Stops after `patience` epochs without a score above all before.

    Args:
        monitor: the score in the logs; the greater the better.
        patience: epochs.
    """

    def __init__(self, monitor: str, patience: int):
        super().__init__(monitor, mode="max", patience=patience, verbose=1)
        self._restored = {"wait": 0, "best": None}

    def state(self) -> dict[str, Any]:
        """The best score, and for how many epochs there was none better."""
        return {"wait": self.wait, "best": None if self.best is None else float(self.best)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned, when the training begins."""
        self._restored = state

    @property
    def is_over(self) -> bool:
        """Whether the restored run was at the end of its patience."""
        return self._restored["wait"] >= self.patience

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Keras forgets what was before; put it back."""
        super().on_train_begin(logs)
        self.wait, self.best = self._restored["wait"], self._restored["best"]

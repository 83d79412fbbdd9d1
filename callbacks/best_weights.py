"""Keeps the weights with the best score."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from utils.log import logger
from utils.paths import atomic_path

SaveWeights = Callable[[keras.Model, Path, dict], None]


class BestWeights(keras.callbacks.Callback):
    """Writes the weights whenever the watched score is better than ever before.

    Args:
        path: of the weight file (`….weights.h5`).
        save: writes a model's weights to a path, with facts (epoch, score) for the reader; None
            only keeps the score in mind.
        monitor: the score in the logs; the greater the better.
        keep_last: also write `<name>_last.weights.h5` after every epoch.
        save_model: also write the whole model as `<name>.keras`.
    """

    def __init__(
        self,
        path: Path,
        save: SaveWeights | None,
        monitor: str,
        keep_last: bool = False,
        save_model: bool = False,
    ):
        super().__init__()
        self._path, self._save, self._monitor = path, save, monitor
        self._keep_last, self._save_model = keep_last, save_model
        self.best_score = -1.0
        self.best_epoch: int | None = None

    def state(self) -> dict[str, Any]:
        """The best score so far and its epoch."""
        return {"score": self.best_score, "epoch": self.best_epoch}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.best_score, self.best_epoch = state["score"], state["epoch"]

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        """Compare the epoch's score with the best and write what is due."""
        score = float(logs[self._monitor])
        facts = {"epoch": epoch + 1, self._monitor: score}
        name, suffix = self._path.name.split(".", 1)
        if self._keep_last and self._save is not None:
            self._save(self.model, self._path.with_name(f"{name}_last.{suffix}"), facts)
        if score > self.best_score:
            self.best_score, self.best_epoch = score, epoch + 1
            if self._save is None:
                return
            self._save(self.model, self._path, facts)
            if self._save_model:
                with atomic_path(self._path.with_name(f"{name}.keras")) as temporary:
                    self.model.save(temporary)
            logger.info(f"Epoch {epoch + 1}: {self._monitor} {score:.4f}, weights saved")

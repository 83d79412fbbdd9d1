"""Stops a run whose loss is no number any more, before it harms what was kept."""

import math
from collections.abc import Callable

import keras
from keras import ops

from utils.errors import UserError
from utils.log import logger

ODD = 10  # a first loss that many times above or below that of guessing is worth a warning
EXPLODED = 100  # a loss that many times above it, at any time, ends the run
_REMEDIES = (
    "Lower HYPER_PARAMETERS.LEARNING_RATE, set HYPER_PARAMETERS.CLIP_NORM=1, or, with "
    "OPTIMIZATION.AMP=True, try OPTIMIZATION.AMP_DTYPE=bfloat16"
)


class LossGuard(keras.callbacks.Callback):
    """Looks at the loss of every batch; must come before what writes anything.

    Keras has read the running mean of the loss by then for its own use, so that looking at it costs
    nothing. Gradients that overflow under mixed_float16 are no matter of the loss: those steps are
    left out, and the run goes on.

    Args:
        guessing: the loss of a network that gives every class the same probability.
        names: the names of the slices of a step, numbers of epoch and step from 0.
    """

    def __init__(self, guessing: float, names: Callable[[int, int], list[str]]):
        super().__init__()
        self._guessing, self._names = guessing, names
        self._epoch, self._total = 0, 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """The running mean starts anew."""
        self._epoch, self._total = epoch, 0.0

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        """Take the batch's own loss out of the mean of all so far and look at it.

        Raises:
            UserError: it is infinite, no number, or exploded; names the slices.
        """
        total = logs["loss"] * (batch + 1)
        loss, self._total = total - self._total, total
        if not loss <= EXPLODED * self._guessing:  # NaN is not either
            self._stop(f"is {loss:g} in step {batch + 1}", self._slices(batch))
        if batch == self._epoch == 0:
            self._judge_first(loss)

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        """Look at the validation, which shows what the last step has done to the weights.

        Raises:
            UserError: its loss is infinite or no number, or float16 is too narrow for the network.
        """
        loss = logs.get("val_loss", 0.0)
        if not math.isfinite(loss):
            self._stop(f"is {loss:g} in the validation after the last step", "")
        scale = getattr(self.model.optimizer, "dynamic_scale", None)
        if scale is not None and float(ops.convert_to_numpy(scale)) < 1:
            self._stop("overflows in float16 whatever its scale", "")

    def _stop(self, what: str, slices: str) -> None:
        kept = (
            f"Weights and state of {self._epoch} epoch(s) are as they were; RESUME=True goes on "
            "from there"
            if self._epoch
            else "No epoch had ended, so nothing was kept of this run"
        )
        raise UserError(f"The loss {what} of epoch {self._epoch + 1}.{slices} {_REMEDIES}. {kept}")

    def _slices(self, step: int) -> str:
        text = f" Its slices: {', '.join(self._names(self._epoch, step))}"
        if step:
            text += f"; those of the step before: {', '.join(self._names(self._epoch, step - 1))}"
        return f"{text}."

    def _judge_first(self, loss: float) -> None:
        if self._guessing / ODD <= loss <= self._guessing * ODD:
            return
        logger.warning(
            f"The first batch has a loss of {loss:.4g}; a network that guesses has "
            f"{self._guessing:.4g}. Look at LOSS, PREPROCESS_DATA.NORMALIZE_MASK and the slices"
        )

"""The learning rate over a run."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
from keras import KerasTensor, ops

Schedule: TypeAlias = keras.optimizers.schedules.LearningRateSchedule


@dataclass(frozen=True)
class ScheduleSettings:
    """How the learning rate changes, step by step; a step is a batch.

    Attributes:
        type: "constant", "cosine" or "polynomial".
        peak: the highest rate, with which the decay begins.
        steps: of the whole run.
        warm_up_steps: steps before the decay in which the rate rises to `peak`.
        final_fraction: of `peak`, what is left at the end of the decay.
        power: of the polynomial decay, (1 - t) ** power with t from 0 to 1.
    """

    type: str
    peak: float
    steps: int
    warm_up_steps: int = 0
    final_fraction: float = 0.0
    power: float = 1.0


def learning_rate(settings: ScheduleSettings) -> float | Schedule:
    """The rate itself if it never changes, otherwise its schedule."""
    peak, steps = settings.peak, settings.steps - settings.warm_up_steps
    if settings.type == "constant" and not settings.warm_up_steps:
        return peak
    schedules = keras.optimizers.schedules
    if settings.type == "cosine":
        decay = schedules.CosineDecay(peak, steps, settings.final_fraction)
    else:
        final = 1.0 if settings.type == "constant" else settings.final_fraction
        decay = schedules.PolynomialDecay(peak, steps, peak * final, settings.power)
    return WarmUp(decay, settings.warm_up_steps) if settings.warm_up_steps else decay


@keras.saving.register_keras_serializable(package="unet3plus")
class WarmUp(Schedule):
    """Rises in equal steps to the first rate of another schedule, which then follows.

    Step k = 0, 1, … of the rise has the rate schedule(0) · (k + 1) / (steps + 1), so that not even
    the first one is without effect.

    Args:
        schedule: what follows.
        steps: of the rise.
    """

    def __init__(self, schedule: Schedule, steps: int):
        super().__init__()
        self.schedule, self.steps = schedule, steps

    def __call__(self, step: int | KerasTensor) -> KerasTensor:
        """The learning rate of `step`, a scalar."""
        step = ops.cast(step, "float32")
        rising = self.schedule(0) * (step + 1) / (self.steps + 1)
        following = self.schedule(ops.maximum(step - self.steps, 0.0))
        return ops.where(step < self.steps, rising, following)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as plain values."""
        schedule = keras.optimizers.schedules.serialize(self.schedule)
        return {"schedule": schedule, "steps": self.steps}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WarmUp":
        """The schedule that gave `config`."""
        schedule = keras.optimizers.schedules.deserialize(config["schedule"])
        return cls(schedule, config["steps"])

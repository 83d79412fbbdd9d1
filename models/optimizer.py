"""The optimizer, and the moving average of the weights that it keeps."""

from dataclasses import dataclass
from typing import Any

import keras
from omegaconf import DictConfig

from models.learning_rate import Schedule, ScheduleSettings, learning_rate
from models.loss_scale import ReplicaLossScaleOptimizer
from utils.errors import UserError

_AVERAGE = "average"  # with which Keras ends the names of variables that hold averages


@dataclass(frozen=True)
class OptimizerSettings:
    """Which optimizer, and what it does to gradients and weights.

    Attributes:
        type: "adam", "adamw" or "sgd".
        rate: learning rate, or its schedule.
        momentum, nesterov: of "sgd".
        weight_decay: share of every kernel, times the learning rate, that a step takes away;
            biases and the parameters of batch normalisation keep theirs.
        clip_norm: greatest norm over all gradients together, None for no limit.
        accumulation: batches whose mean gradient makes one step.
        average: decay per step of a moving average of weights and moving statistics, or None.
    """

    type: str
    rate: float | Schedule
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    clip_norm: float | None = None
    accumulation: int = 1
    average: float | None = None


def optimizer_settings(
    cfg: DictConfig, steps_per_epoch: int | None, replicas: int = 1
) -> OptimizerSettings:
    """The section `HYPER_PARAMETERS` as plain settings.

    Args:
        cfg: the configuration.
        steps_per_epoch: batches; None will do for a constant learning rate.
        replicas: copies of the model that train together.

    Raises:
        UserError: a setting that does not work on several replicas, or no step before the end.
    """
    settings, schedule = cfg.HYPER_PARAMETERS, cfg.HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE
    for key, is_off, reason in (
        ("GRADIENT_ACCUMULATION", settings.GRADIENT_ACCUMULATION == 1,
         "Keras cannot accumulate gradients there"),
        ("CLIP_NORM", settings.CLIP_NORM is None,
         "Keras clips the gradients of each before it adds them up, so that they would not train "
         "as one does"),
    ):  # fmt: skip
        if replicas > 1 and not is_off:
            raise UserError(
                f"HYPER_PARAMETERS.{key}: found {settings[key]}; it does not work on {replicas} "
                f"replicas ({reason}). Train on one (USE_MULTI_GPUS.VALUE=False), or without it"
            )
    steps = steps_per_epoch or 0
    if 0 < steps * settings.EPOCHS < settings.GRADIENT_ACCUMULATION:
        raise UserError(
            f"HYPER_PARAMETERS.GRADIENT_ACCUMULATION: found {settings.GRADIENT_ACCUMULATION} "
            f"batches; the whole run has {steps * settings.EPOCHS}, so weights would never change"
        )
    rate = ScheduleSettings(
        str(schedule.TYPE),
        settings.LEARNING_RATE,
        steps * settings.EPOCHS,
        round(steps * schedule.WARMUP_EPOCHS),
        schedule.FINAL_FRACTION,
        schedule.POWER,
    )
    return OptimizerSettings(
        str(settings.OPTIMIZER),
        learning_rate(rate),
        settings.MOMENTUM,
        settings.NESTEROV,
        settings.WEIGHT_DECAY,
        settings.CLIP_NORM,
        settings.GRADIENT_ACCUMULATION,
        settings.EMA,
    )


def build_optimizer(
    settings: OptimizerSettings, model: keras.Model, replicas: int = 1
) -> keras.optimizers.Optimizer:
    """The optimizer for `model`; call it in the scope of the strategy that trains."""
    classes = {
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "sgd": keras.optimizers.SGD,
    }
    average = settings.average
    own: dict[str, Any] = {}
    if settings.type == "sgd":
        own |= {"momentum": settings.momentum, "nesterov": settings.nesterov}
    if average is not None:  # taken after every batch, also between the steps of accumulation
        own["ema_momentum"] = average ** (1 / settings.accumulation)
    optimizer = classes[settings.type](
        settings.rate,
        weight_decay=settings.weight_decay or None,
        global_clipnorm=settings.clip_norm,
        gradient_accumulation_steps=settings.accumulation if settings.accumulation > 1 else None,
        use_ema=average is not None,
        **own,
    )
    vectors = [variable for variable in model.trainable_variables if len(variable.shape) == 1]
    optimizer.exclude_from_weight_decay(vectors)
    if replicas > 1 and model.dtype_policy.name == "mixed_float16":
        optimizer = ReplicaLossScaleOptimizer(optimizer)  # otherwise Keras wraps it
    return optimizer


def average_moving_statistics(model: keras.Model) -> None:
    """Have the optimizer of the compiled `model` average moving statistics as it does weights.

    They belong to the weights they were measured with. Keras averages the variables that its
    optimizer is built with, so it is built with these too; it has no gradients to move them by.
    """
    model.optimizer.build(_averaged(model))


def averages(model: keras.Model) -> list[tuple[keras.Variable, keras.Variable]]:
    """Pairs of a weight or moving statistic and its average; none where no average is kept."""
    kept = [v for v in model.optimizer.variables if v.name.endswith(f"_{_AVERAGE}")]
    return list(zip(_averaged(model), kept, strict=True)) if kept else []


def _averaged(model: keras.Model) -> list[keras.Variable]:
    return [*model.trainable_variables, *model.non_trainable_weights]

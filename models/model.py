"""The adapter between the configuration and the network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import KerasTensor, ops
from omegaconf import DictConfig

from losses.metrics import DiceCoefficient
from losses.unet_loss import SegmentationLoss, loss_settings, presence_loss
from models.blocks import UnitSettings
from models.inference_view import fold_batch_norm
from models.optimizer import average_moving_statistics, build_optimizer, optimizer_settings
from models.unet3plus import HEADS, MAIN_HEAD, PRESENCE, UNet3Plus, build_unet3plus
from models.weights import WEIGHTS_SUFFIX
from utils.config import validate_config
from utils.config_rules import uses_imagenet
from utils.paths import resolve_path
from utils.runtime import Runtime

Loss = Callable[[KerasTensor, KerasTensor], KerasTensor]

MONITOR = "val_dice_coef"  # watched by checkpoint and early stopping, the greater the better


def prepare_model(cfg: DictConfig) -> UNet3Plus:
    """The full graph of the configured variant; INPUT, OUTPUT and MODEL are enough of a `cfg`."""
    cfg = validate_config(cfg)
    return build_unet3plus(
        variant=str(cfg.MODEL.TYPE),
        backbone=str(cfg.MODEL.BACKBONE.TYPE),
        input_shape=(cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH, cfg.INPUT.CHANNELS),
        classes=cfg.OUTPUT.CLASSES,
        filters=tuple(cfg.MODEL.FILTERS),
        cgm_dropout=cfg.MODEL.CGM.DROPOUT,
        cgm_gate=str(cfg.MODEL.CGM.GATE),
        settings=UnitSettings(
            cfg.MODEL.L2,
            cfg.MODEL.BATCH_NORM.MOMENTUM,
            cfg.MODEL.BATCH_NORM.EPSILON,
            str(cfg.MODEL.RESAMPLE),
            synchronized=cfg.MODEL.BATCH_NORM.SYNCHRONIZED,
        ),
        input_scaling=_input_scaling(cfg),
    )


def compile_model(
    model: UNet3Plus, cfg: DictConfig, runtime: Runtime, steps_per_epoch: int | None = None
) -> None:
    """Attach optimizer, the losses of every head and the metrics of the main head.

    Args:
        model: to be compiled, in the scope of the strategy that it was built in.
        cfg: the configuration.
        runtime: where it will run.
        steps_per_epoch: batches; needed only where the learning rate changes.

    Raises:
        UserError: a setting of the optimizer that does not work on several replicas, or no step of
            it before the end.
    """
    replicas = runtime.replicas
    optimizer = optimizer_settings(cfg, steps_per_epoch, replicas)
    losses, weights = _losses(model, cfg)
    model.head_metrics = [DiceCoefficient(cfg.OUTPUT.CLASSES)] + [
        keras.metrics.MeanMetricWrapper(term, name=name)
        for name, term in loss_settings(cfg).terms().items()
    ]
    model.compile(
        optimizer=build_optimizer(optimizer, model, replicas),
        loss=losses,
        loss_weights=weights,
        jit_compile=runtime.jit_compile,
    )
    if optimizer.average is not None:
        average_moving_statistics(model)


def _losses(model: UNet3Plus, cfg: DictConfig) -> tuple[dict[str, Loss], dict[str, float]]:
    """The loss of every output of `model`, and its weight."""
    settings = loss_settings(cfg)
    losses: dict[str, Loss] = {
        head: SegmentationLoss(settings) for head in HEADS if head in model.output
    }
    weights = dict(zip(HEADS, cfg.LOSS.DEEP_SUPERVISION_WEIGHTS, strict=True))
    weights = {head: weights[head] for head in losses}
    if PRESENCE in model.output:
        losses[PRESENCE], weights[PRESENCE] = presence_loss, cfg.LOSS.CGM_WEIGHT
    return losses, weights


def loss_of_guessing(model: UNet3Plus, cfg: DictConfig, masks: np.ndarray) -> float:
    """The loss, regularisation included, if every class of every pixel were equally probable.

    Args:
        model: whose outputs and weights count; it is not called.
        cfg: the section LOSS decides.
        masks: class ids, (B, H, W).
    """
    losses, weights = _losses(model, cfg)
    targets = model.targets(ops.convert_to_tensor(masks))
    total = sum(float(ops.convert_to_numpy(loss)) for loss in model.losses)
    for head, loss in losses.items():
        guess = ops.full_like(targets[head], 1 / max(2, targets[head].shape[-1]))
        total += weights[head] * float(np.mean(ops.convert_to_numpy(loss(targets[head], guess))))
    return total


def inference_view(model: UNet3Plus, jit_compile: bool = False) -> keras.Model:
    """The model from image to the main head's probabilities, as fast as they can be had.

    Other heads are left out and batch normalisation is folded into the convolutions, with the
    weights that `model` has at the time of the call: make the view after loading or training.
    """
    main = keras.Model(model.input, model.output[MAIN_HEAD], name=f"{model.name}_inference")
    view = fold_batch_norm(main)
    view.compile(jit_compile=jit_compile)  # explicit: Keras would turn XLA on by itself on a GPU
    return view


def weights_path(cfg: DictConfig) -> Path:
    """Where the weights of this configuration lie."""
    folder = resolve_path(cfg.CALLBACKS.MODEL_CHECKPOINT.PATH, cfg.WORK_DIR)
    return folder / f"{cfg.MODEL.WEIGHTS_FILE_NAME.removesuffix(WEIGHTS_SUFFIX)}{WEIGHTS_SUFFIX}"


def model_identity(cfg: DictConfig) -> dict[str, Any]:
    """What decides whether weights fit, with the entries of `models.weights.IDENTITY_KEYS`."""
    return {
        "variant": str(cfg.MODEL.TYPE),
        "backbone": str(cfg.MODEL.BACKBONE.TYPE),
        "filters": list(cfg.MODEL.FILTERS),
        "classes": cfg.OUTPUT.CLASSES,
        "channels": cfg.INPUT.CHANNELS,
        "batch_norm_epsilon": cfg.MODEL.BATCH_NORM.EPSILON,
        "input_scaling": _input_scaling(cfg),
    }


def _input_scaling(cfg: DictConfig) -> str:
    return "imagenet" if uses_imagenet(cfg) else "none"

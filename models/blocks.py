"""The convolution unit, with or without up-sampling: the block that decoder and encoder share."""

from dataclasses import dataclass
from typing import Any

import keras

from models.batch_norm import FusedBatchNormalization
from models.resample_conv import ResampleConv2D


@dataclass(frozen=True)
class UnitSettings:
    """What all convolution units of a network share.

    Attributes:
        l2: factor of the L2 penalty on the kernels, 0 for none.
        momentum: of the moving statistics of batch normalisation, in Keras's sense.
        epsilon: added to the variance in batch normalisation.
        resample: a method of `ResampleConv2D`.
        synchronized: batch statistics over all replicas instead of each replica's own.
    """

    l2: float = 0.0
    momentum: float = 0.9
    epsilon: float = 1e-5
    resample: str = "exact_fast"
    synchronized: bool = False


def conv_unit(
    x: keras.KerasTensor,
    filters: int,
    name: str,
    settings: UnitSettings,
    factor: int = 1,
    relu: bool = True,
) -> keras.KerasTensor:
    """3x3 convolution, batch normalisation, ReLU, on `x` up-sampled bilinearly by `factor`.

    (B, h, w, C) to (B, factor · h, factor · w, `filters`). `name` is the convolution's and contains
    "conv"; the others take its place there ("bn", "relu").
    """
    arguments: dict[str, Any] = {
        "kernel_initializer": "he_normal",
        "kernel_regularizer": keras.regularizers.L2(settings.l2) if settings.l2 else None,
        "name": name,
    }
    if factor > 1:
        convolution = ResampleConv2D(filters, factor, settings.resample, **arguments)
    else:
        convolution = keras.layers.Conv2D(filters, kernel_size=3, padding="same", **arguments)
    x = convolution(x)
    # Batch normalisation subtracts the bias again: its gradient is nothing but rounding errors,
    # which Adam would blow up to whole steps
    convolution.bias.trainable = False
    x = FusedBatchNormalization(
        momentum=settings.momentum,
        epsilon=settings.epsilon,
        synchronized=settings.synchronized,
        name=name.replace("conv", "bn"),
    )(x)
    return keras.layers.ReLU(name=name.replace("conv", "relu"))(x) if relu else x

"""The convolution unit and the resampling: the only two blocks that change a feature's shape."""

from dataclasses import dataclass

import keras


@dataclass(frozen=True)
class UnitSettings:
    """What all convolution units of a network share.

    Attributes:
        l2: factor of the L2 penalty on the kernels, 0 for none.
        momentum: of the moving statistics of batch normalisation, in Keras's sense.
        epsilon: added to the variance in batch normalisation.
        synchronized: batch statistics over all replicas instead of each replica's own.
    """

    l2: float = 0.0
    momentum: float = 0.9
    epsilon: float = 1e-5
    synchronized: bool = False


def conv_unit(
    x: keras.KerasTensor, filters: int, name: str, settings: UnitSettings
) -> keras.KerasTensor:
    """3x3 convolution, batch normalisation, ReLU; (B, H, W, C) to (B, H, W, `filters`).

    `name` is the convolution's and contains "conv"; the others take its place there ("bn", "relu").
    """
    convolution = keras.layers.Conv2D(
        filters,
        kernel_size=3,
        padding="same",
        kernel_initializer="he_normal",
        kernel_regularizer=keras.regularizers.L2(settings.l2) if settings.l2 else None,
        name=name,
    )
    x = convolution(x)
    # Batch normalisation subtracts the bias again: its gradient is nothing but rounding errors,
    # which Adam would blow up to whole steps
    convolution.bias.trainable = False
    x = keras.layers.BatchNormalization(
        momentum=settings.momentum,
        epsilon=settings.epsilon,
        synchronized=settings.synchronized,
        name=name.replace("conv", "bn"),
    )(x)
    return keras.layers.ReLU(name=name.replace("conv", "relu"))(x)


def resample(x: keras.KerasTensor, from_level: int, to_level: int, name: str) -> keras.KerasTensor:
    """Bring a feature from one level to another, level l having stride 2^(l-1).

    Down by max-pooling, up by bilinear interpolation with half-pixel centres; the same level passes
    unchanged.
    """
    if from_level < to_level:
        return keras.layers.MaxPooling2D(2 ** (to_level - from_level), name=f"{name}_pool")(x)
    if from_level > to_level:
        # In float32: the gradient of a bilinear resize in half precision does not compile with XLA
        return keras.layers.UpSampling2D(
            2 ** (from_level - to_level),
            interpolation="bilinear",
            dtype="float32",
            name=f"{name}_up",
        )(x)
    return x

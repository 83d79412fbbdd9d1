"""Encoders, each a row in a table.

The contract: an encoder takes (B, H, W, C) and returns five features, level l = 1 … 5 having stride
2^(l-1), so that H and W must be multiples of 16. `models.start_weights` says what they start from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import keras

from models.blocks import UnitSettings, conv_unit

LEVELS = 5


@dataclass(frozen=True)
class Encoder:
    """One row: how many 3x3 convolutions each level has and how they are made.

    Attributes:
        convolutions: number per level.
        width_levels: which of the five widths each level takes (VGG repeats the fourth).
        prefix: of layer names, with the level put in.
        batch_norm: convolution units as in the paper, or plain convolution + ReLU as in VGG.
    """

    convolutions: tuple[int, ...]
    width_levels: tuple[int, ...]
    prefix: str
    batch_norm: bool


ENCODERS = {
    "unet3plus": Encoder((2, 2, 2, 2, 2), (1, 2, 3, 4, 5), "enc{level}", batch_norm=True),
    "vgg16": Encoder((2, 2, 3, 3, 3), (1, 2, 3, 4, 4), "block{level}", batch_norm=False),
    "vgg19": Encoder((2, 2, 4, 4, 4), (1, 2, 3, 4, 4), "block{level}", batch_norm=False),
}

# Means of R, G and B (grey values), which the VGG networks were trained without on ImageNet
IMAGENET_MEAN = (123.68, 116.779, 103.939)
INPUT_SCALINGS = ("none", "imagenet")


def scale_input(image: keras.KerasTensor, scaling: str) -> keras.KerasTensor:
    """Grey values in [0, 1] as they are ("none"), or as ImageNet weights expect them ("imagenet").

    The latter are grey values 0 … 255 minus their means on ImageNet. They must be in the graph, not
    in the first kernel and bias: the convolution pads with 0, which has to mean the mean grey value
    there. The layer holds no weights, so weight files look the same with it and without.

    Raises:
        ValueError: unknown scaling.
    """
    if scaling not in INPUT_SCALINGS:
        raise ValueError(f"expected a scaling out of {INPUT_SCALINGS}, received {scaling!r}")
    if scaling == "none":
        return image
    offset = [-mean for mean in IMAGENET_MEAN]
    return keras.layers.Rescaling(255.0, offset, dtype="float32", name="imagenet_scaling")(image)


def encoder_kernels(
    kind: str, filters: Sequence[int], channels: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and kernel shape (3, 3, in, out) of every convolution, in the order of the graph."""
    encoder = ENCODERS[kind]
    for level in range(1, LEVELS + 1):
        width = filters[encoder.width_levels[level - 1] - 1]
        for number in range(1, encoder.convolutions[level - 1] + 1):
            name = f"{encoder.prefix.format(level=level)}_conv{number}"
            yield name, (3, 3, channels, width)
            channels = width


def build_encoder(
    x: keras.KerasTensor, kind: str, filters: Sequence[int], settings: UnitSettings
) -> list[keras.KerasTensor]:
    """The five features of encoder `kind` on input `x`, finest first.

    Raises:
        ValueError: `kind` is not a row of `ENCODERS`.
    """
    if kind not in ENCODERS:
        raise ValueError(f"expected a backbone out of {', '.join(ENCODERS)}, received {kind!r}")
    encoder = ENCODERS[kind]
    features = []
    for level in range(1, LEVELS + 1):
        prefix = encoder.prefix.format(level=level)
        if level > 1:
            x = keras.layers.MaxPooling2D(2, name=f"{prefix}_pool")(x)
        width = filters[encoder.width_levels[level - 1] - 1]
        for number in range(1, encoder.convolutions[level - 1] + 1):
            name = f"{prefix}_conv{number}"
            if encoder.batch_norm:
                x = conv_unit(x, width, name, settings)
            else:
                x = keras.layers.Conv2D(
                    width,
                    kernel_size=3,
                    padding="same",
                    activation="relu",
                    kernel_initializer="he_normal",
                    name=name,
                )(x)
        features.append(x)
    return features

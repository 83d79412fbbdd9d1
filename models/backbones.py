"""Encoders, each a row in a table.

The contract: an encoder takes (B, H, W, C) and returns five features, level l = 1 … 5 having stride
2^(l-1), so that H and W must be multiples of 16. All are untrained.
"""

from collections.abc import Sequence
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

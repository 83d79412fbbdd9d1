"""The full-scale decoder of UNet 3+ (Huang et al. 2020, figures 1c and 2), one for all variants."""

import keras

from models.backbones import LEVELS
from models.blocks import UnitSettings, conv_unit


def build_decoder(
    encoder: list[keras.KerasTensor], branch_filters: int, settings: UnitSettings
) -> list[keras.KerasTensor]:
    """The five decoder features, finest first; the fifth is the encoder's own.

    Decoder level l = 4 … 1 takes encoder levels s ≤ l and decoder levels s > l. Each source is
    resampled to level l, goes through a convolution unit of `branch_filters` channels, and all five
    are concatenated in order and fused by a unit of 5 · `branch_filters` channels.
    """
    decoder = dict(enumerate(encoder, start=1))  # level -> feature; replaced from 4 down to 1
    for level in range(LEVELS - 1, 0, -1):
        branches = []
        for source in range(1, LEVELS + 1):
            feature = encoder[source - 1] if source <= level else decoder[source]
            name = f"dec{level}_from{source}"
            if source < level:
                feature = keras.layers.MaxPooling2D(2 ** (level - source), name=f"{name}_pool")(
                    feature
                )
            factor = 2 ** max(source - level, 0)
            branches.append(
                conv_unit(feature, branch_filters, f"{name}_conv", settings, factor, relu=False)
            )
        fused = keras.layers.Concatenate(name=f"dec{level}_concat")(branches)
        fused = keras.layers.ReLU(name=f"dec{level}_concat_relu")(fused)
        decoder[level] = conv_unit(fused, LEVELS * branch_filters, f"dec{level}_conv", settings)
    return [decoder[level] for level in range(1, LEVELS + 1)]

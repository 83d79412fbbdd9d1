"""Every fast operator against what it replaces, at the sizes of a 320 x 320 px slice.

`python -m benchmarks.operators`
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from benchmarks.measure import median_seconds, report
from models.batch_norm import FusedBatchNormalization
from models.resample_conv import ResampleConv2D

Layer = Callable[[tf.Tensor], tf.Tensor]
REPEATS = 7
BRANCH, CLASSES = 64, 2

# What is measured: name, shape of the input, the operator, what it replaces
OPERATORS = [
    *(
        (
            f"up-sample x{factor}, convolve to {BRANCH}",
            (1, size, size, channels),
            ResampleConv2D(BRANCH, factor),
            ResampleConv2D(BRANCH, factor, "direct"),
        )
        for size, channels, factor in [(160, 320, 2), (80, 320, 4), (40, 320, 8), (20, 512, 16)]
    ),
    *(
        (
            f"convolve to {CLASSES}, up-sample x{factor}",
            (1, size, size, channels),
            ResampleConv2D(CLASSES, factor, convolve_first=True),
            ResampleConv2D(CLASSES, factor, "direct", convolve_first=True),
        )
        for size, channels, factor in [(320, 320, 1), (160, 320, 2), (20, 512, 16)]
    ),
    *(
        (
            "batch normalisation",
            (1, size, size, channels),
            FusedBatchNormalization(),
            keras.layers.BatchNormalization(),
        )
        for size, channels in [(320, 64), (320, 320)]
    ),
]


def compiled(layer: keras.Layer, x: tf.Tensor, backward: bool) -> Callable[[], list[tf.Tensor]]:
    """A function that runs `layer` on `x` in training mode, with all gradients or without."""
    gradient = tf.random.normal(layer(x).shape)

    @tf.function
    def run() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        weights = [variable.value for variable in layer.trainable_variables]
        return [y, *(tape.gradient(y, [x, *weights], gradient) if backward else [])]

    return run


def main() -> None:
    """Measure, print, write."""
    rows = []
    for name, shape, fast, plain in OPERATORS:
        x = tf.random.normal(shape)
        cases = {
            (kind, backward): compiled(layer, x, backward)
            for kind, layer in (("plain", plain), ("fast", fast))
            for backward in (False, True)
        }
        seconds = median_seconds(cases, REPEATS)
        for backward in (False, True):
            plain_time, fast_time = seconds["plain", backward], seconds["fast", backward]
            rows.append(
                {
                    "operator": name,
                    "input": " x ".join(map(str, shape[1:])),
                    "gradients": "with" if backward else "without",
                    "plain, ms": round(1000 * plain_time, 1),
                    "fast, ms": round(1000 * fast_time, 1),
                    "ratio": round(plain_time / fast_time, 2),
                }
            )
    report("operators", "Operators: plain layers against fast ones, float32", rows)


if __name__ == "__main__":
    main()

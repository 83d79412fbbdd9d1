"""The whole network against the direct graph of plain Keras layers.

vgg19 base at 320 x 320 px in float32: training step, inference, peak memory of training.
`python -m benchmarks.model`
"""

import keras
import tensorflow as tf

from benchmarks.measure import median_seconds, printed_number, report
from benchmarks.networks import KINDS, batch_of, configuration, network
from models.model import inference_view
from models.unet3plus import MAIN_HEAD

BATCHES = (1, 2)
REPEATS = 3
CHANNELS = 320  # of the convolution that fuses the finest branches
# GMAC of a forward pass with channels mixed at low resolution, and of that convolution in it
FORWARD_GMAC, CONVOLUTION_GMAC = 173, 94.4


def memory_row(batch: int) -> dict:
    """Peak memory of a process that trains."""
    peaks = {kind: printed_number("benchmarks.networks", kind, batch) for kind in KINDS}
    ratio = peaks["fast"] / peaks["plain"]
    return _row("peak training memory, GB", batch, peaks, ratio, "<= 0.75")


def training_row(batch: int) -> dict:
    """Time of a training step."""
    cfg = configuration(batch)
    data = batch_of(cfg)
    models = {kind: network(kind, cfg) for kind in KINDS}
    seconds = median_seconds(
        {kind: lambda model=model: model.train_on_batch(*data) for kind, model in models.items()},
        REPEATS,
    )
    return _row("training step, s", batch, seconds, seconds["plain"] / seconds["fast"], ">= 1.5")


def inference_rows(batch: int) -> list[dict]:
    """Time of a forward pass, against the plain graph's and against the floor."""
    cfg = configuration(batch)
    x = tf.constant(batch_of(cfg)[0])
    plain = network("plain", cfg)
    view = inference_view(network("fast", cfg))
    feature = tf.random.normal((batch, cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH, CHANNELS))
    convolution = keras.layers.Conv2D(CHANNELS, 3, padding="same")
    convolution.build(feature.shape)
    seconds = median_seconds(
        {
            "plain": _compiled(lambda: plain(x, training=False)[MAIN_HEAD]),
            "fast": _compiled(lambda: view(x, training=False)),
            "convolution": _compiled(lambda: convolution(feature)),
        },
        REPEATS,
    )
    seconds["floor"] = FORWARD_GMAC / CONVOLUTION_GMAC * seconds["convolution"]
    return [
        _row("inference, s", batch, seconds, seconds["plain"] / seconds["fast"], ">= 1.4"),
        _row(
            "inference against the floor, s",
            batch,
            {"plain": seconds["floor"], "fast": seconds["fast"]},
            seconds["fast"] / seconds["floor"],
            "<= 1.25",
        ),
    ]


def _compiled(call):
    return tf.function(call, jit_compile=False)


def _row(quantity: str, batch: int, values: dict, ratio: float, target: str) -> dict:
    return {
        "quantity": quantity,
        "batch": batch,
        "plain": round(values["plain"], 2),
        "fast": round(values["fast"], 2),
        "ratio": round(ratio, 2),
        "target": target,
    }


def main() -> None:
    """Measure, print, write."""
    rows = [memory_row(batch) for batch in BATCHES]
    for batch in BATCHES:
        rows += [training_row(batch), *inference_rows(batch)]
    title = "UNet 3+, vgg19 base, 320 x 320 px, float32: plain Keras layers against this project"
    report("model", title, rows)


if __name__ == "__main__":
    main()

"""Run by test_layer_replicas.py: `layer_replicas.py LAYER` trains on one and on two CPU replicas.

Prints by how much the trained weights differ most. One process for each layer: TensorFlow's
collective operations do not let go of the shapes of an earlier strategy.
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import utils  # noqa: F401, I001  (sets the environment before TensorFlow is imported)
import keras
import numpy as np
import tensorflow as tf

from models.batch_norm import FusedBatchNormalization
from models.resample_conv import METHODS, ResampleConv2D

ONE, TWO = ["CPU:0"], ["CPU:0", "CPU:1"]
# Name -> mean and sd of the input, shape of the output, devices and layers that must train alike
CASES: dict[str, tuple[tuple, tuple, list[tuple[list[str], Callable[[], keras.Layer]]]]] = {
    # Every replica has the statistics of its own half, as in Keras
    "batch normalisation": (
        (2, 3),
        (3, 5, 6),
        [
            (TWO, lambda: FusedBatchNormalization(momentum=0.5)),
            (TWO, lambda: keras.layers.BatchNormalization(momentum=0.5)),
        ],
    ),
    "up-sampling convolution": (
        (0, 1),
        (6, 10, 2),
        [
            (devices, lambda method=method: ResampleConv2D(2, 2, method))
            for devices in (ONE, TWO)
            for method in METHODS
        ],
    ),
}


def trained_weights(
    devices: list[str], make_layer: Callable[[], keras.Layer], normal: tuple, shape: tuple
) -> list[np.ndarray]:
    """The weights of a model of this one layer after three steps."""
    x = np.random.default_rng(0).normal(*normal, size=(4, 3, 5, 6)).astype(np.float32)
    y = np.random.default_rng(1).normal(size=(4, *shape)).astype(np.float32)
    keras.utils.set_random_seed(5)
    with tf.distribute.MirroredStrategy(devices).scope():
        model = keras.Sequential([keras.Input(x.shape[1:]), make_layer()])
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    start = model.get_weights()
    model.fit(x, y, batch_size=4, epochs=3, verbose=0, shuffle=False)
    assert any((old != new).any() for old, new in zip(start, model.get_weights(), strict=True))
    return model.get_weights()


def main() -> None:
    """Train, compare, print."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    normal, shape, kinds = CASES[sys.argv[1]]
    first, *others = [trained_weights(*kind, normal, shape) for kind in kinds]
    pairs = [pair for other in others for pair in zip(first, other, strict=True)]
    print(max(float(np.abs(one - two).max()) for one, two in pairs))


if __name__ == "__main__":
    main()

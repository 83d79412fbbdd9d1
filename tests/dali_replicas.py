"""Run by test_dali_generator.py in a process of its own: one and two replicas, both generators."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import utils  # noqa: F401, I001  (sets the environment before TensorFlow is imported)
import keras
import numpy as np
import tensorflow as tf

from data_generators.data_generator import DataSplit, get_data_generator
from tests.conftest import SIZE, TINY, merged
from utils.config import validate_config
from utils.runtime import Runtime

TWO = ("CPU:0", "CPU:1")


def make_split(work_dir: str, generator: str, runtime: Runtime) -> DataSplit:
    changes = {
        "WORK_DIR": work_dir,
        "DATA_GENERATOR_TYPE": generator,
        "HYPER_PARAMETERS": {"BATCH_SIZE": 4 // runtime.replicas},
    }
    return get_data_generator(validate_config(merged(TINY, changes)), "TRAIN", runtime)


def fit(split: DataSplit, runtime: Runtime) -> list[float]:
    """Losses of two epochs of a network with one convolution, the second and the third epoch."""
    keras.utils.set_random_seed(0)
    with runtime.strategy.scope():
        inputs = keras.Input((SIZE, SIZE, 3))
        model = keras.Model(inputs, keras.layers.Conv2D(1, 3, padding="same")(inputs))
        model.compile(keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError())
    start = keras.callbacks.LambdaCallback(on_epoch_begin=lambda e, logs: split.start_epoch(e))
    history = model.fit(
        split.dataset,
        steps_per_epoch=split.steps_per_epoch,
        initial_epoch=1,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[start],
    )
    return history.history["loss"]


def check_parts(work_dir: str, runtime: Runtime) -> None:
    """Replica 0 gets the first half of every batch of the TF generator, replica 1 the second."""
    dali, plain = [
        make_split(work_dir, name, runtime) for name in ("DALI_GENERATOR", "TF_GENERATOR")
    ]
    iterator = iter(dali.dataset)
    for epoch in range(2):
        plain.start_epoch(epoch)
        for batch in plain.dataset:
            for expected, found in zip(batch, next(iterator), strict=True):
                parts = runtime.strategy.experimental_local_results(found)
                np.testing.assert_array_equal([len(part) for part in parts], [2, 2])
                np.testing.assert_array_equal(np.concatenate(parts), expected)


def main(work_dir: str) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    one = Runtime(tf.distribute.get_strategy(), TWO[:1], amp=False, xla=False)
    two = Runtime(tf.distribute.MirroredStrategy(TWO), TWO, amp=False, xla=False)
    check_parts(work_dir, two)
    losses = {
        (name, runtime.replicas): fit(make_split(work_dir, name, runtime), runtime)
        for name in ("TF_GENERATOR", "DALI_GENERATOR")
        for runtime in (one, two)
    }
    expected = losses["TF_GENERATOR", 1]
    for key, found in losses.items():
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=str(key))
    print("replicas agree")


if __name__ == "__main__":
    main(sys.argv[1])

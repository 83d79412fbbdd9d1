"""Run by tests in a process of its own: `train` on a network of two convolutions.

Arguments: JSON of changes to the configuration of the tests, and of options:
`kill`: number (from 0) of the epoch in which the process kills itself after a batch;
`dropout`: rate; `plain`: use TensorFlow's own strategy for several workers.
The last line printed is JSON: what `train` returned, and the weights of the trained network.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import utils  # noqa: F401, I001  (sets the environment before TensorFlow is imported)
import keras
import tensorflow as tf

import train
from models.unet3plus import UNet3Plus
from tests.conftest import TINY, merged
from utils import cluster
from utils.config import validate_config
from utils.log import setup_logging


def small_network(dropout: float) -> UNet3Plus:
    layers = keras.layers
    image = keras.Input((32, 32, 3))
    x = layers.Conv2D(4, 3, padding="same", use_bias=False)(image)
    x = layers.Dropout(dropout, seed=1)(layers.BatchNormalization(synchronized=True)(x))
    x = layers.Conv2D(2, 3, padding="same", dtype="float32", activation="softmax")(x)
    return UNet3Plus(inputs=image, outputs={"d1": x}, name="small")


def killing(start_epoch, epoch: int) -> keras.callbacks.Callback:
    """In place of `epoch_order`, also ends the process in the middle of `epoch`."""
    reached = []

    def begin(number, logs):
        start_epoch(number)
        reached.append(number)

    def end_batch(batch, logs):
        if reached[-1] == epoch and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_train_batch_end=end_batch)


def main(changes: dict, options: dict) -> None:
    networks = []

    def prepare(cfg):
        networks.append(small_network(options.get("dropout", 0.0)))
        return networks[-1]

    train.prepare_model = prepare
    if "kill" in options:
        train.epoch_order = lambda start: killing(start, options["kill"])
    if options.get("plain"):
        cluster.WorkersStrategy = tf.distribute.MultiWorkerMirroredStrategy
    setup_logging(1)
    result = train.train(validate_config(merged(TINY, changes)))
    weights = [weight.numpy().tolist() for weight in networks[-1].weights]
    print(json.dumps({"result": result, "weights": weights}))


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))

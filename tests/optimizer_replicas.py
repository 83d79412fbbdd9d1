"""Run by test_optimizer.py in a process of its own: what the optimizer does on two CPU replicas.

Prints JSON: for one and for two replicas the trained weights with their averages, and the weights
after a step of mixed_float16 whose gradient overflows on the second replica only.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import utils  # noqa: F401, I001  (sets the environment before TensorFlow is imported)
import keras
import numpy as np
import tensorflow as tf

from callbacks.averaged_weights import AveragedWeights
from models.model import compile_model
from models.optimizer import averages
from tests.conftest import SIZE, TINY, merged
from tests.train_run import small_network
from utils.config import validate_config
from utils.runtime import Runtime, setup_runtime

SETTINGS = {
    "OPTIMIZER": "adamw",
    "WEIGHT_DECAY": 0.1,
    "EMA": 0.5,
    "LEARNING_RATE": 1e-2,
    "LEARNING_RATE_SCHEDULE": {"TYPE": "cosine", "WARMUP_EPOCHS": 0.5},
}


def network(replicas: int, amp: bool) -> tuple[keras.Model, Runtime]:
    changes = {
        "HYPER_PARAMETERS": SETTINGS,
        "USE_MULTI_GPUS": {"CPU_REPLICAS": replicas},
        "OPTIMIZATION": {"AMP": amp},
    }
    cfg = validate_config(merged(TINY, changes))
    runtime = setup_runtime(cfg, distribute=True)
    with runtime.strategy.scope():
        model = small_network(dropout=0.0)
        compile_model(model, cfg, runtime, steps_per_epoch=2)
    return model, runtime


def trained(replicas: int) -> list[list]:
    model, _ = network(replicas, amp=False)
    rng = np.random.default_rng(0)
    images = rng.random((8, SIZE, SIZE, 3)).astype("float32")
    slices = tf.data.Dataset.from_tensor_slices((images, (images[..., 0] > 0.5).astype("uint8")))
    batches = slices.batch(4, drop_remainder=True)
    averaging = AveragedWeights(averages(model))
    model.fit(batches, epochs=2, validation_data=batches, verbose=0, callbacks=[averaging])
    return [value.numpy().tolist() for pair in averages(model) for value in pair]


def overflown() -> dict:
    model, runtime = network(2, amp=True)
    variables, optimizer = model.trainable_variables, model.optimizer

    @tf.function
    def step(overflows: tf.Tensor) -> None:
        context = tf.distribute.get_replica_context()
        is_second = tf.equal(context.replica_id_in_sync_group, 1)
        gradient = tf.where(tf.logical_and(is_second, overflows), np.inf, 1.0)
        optimizer.apply([tf.fill(v.shape, gradient) for v in variables], variables)

    found = {}
    for overflows in (True, False):
        before = [v.numpy() for v in variables]
        runtime.strategy.run(step, (tf.constant(overflows),))
        moved = [np.abs(v.numpy() - b).max() for v, b in zip(variables, before, strict=True)]
        found[str(overflows)] = {
            "moved": float(np.max(moved)),
            "scale": float(optimizer.dynamic_scale.numpy()),
            "steps": int(optimizer.iterations.numpy()),
        }
    return found


if __name__ == "__main__":
    two = trained(2)  # comes first, as TensorFlow fixes the devices then
    print(json.dumps({"two": two, "overflow": overflown(), "one": trained(1)}))

"""One cell of the training study: a training step, timed in a process of its own.

`benchmark_training.py` starts it with the configuration as JSON on standard input. The last line
printed is the result as JSON; TensorFlow may still crash after it where memory has run out.
"""

import json
import statistics
import sys
from typing import Any

import tensorflow as tf
from omegaconf import DictConfig

from models.model import compile_model, prepare_model
from utils.config import validate_config
from utils.gpu_usage import GpuUsage
from utils.memory_limit import limit_memory
from utils.runtime import setup_runtime
from utils.timing import time_calls

MEASURED, OUT_OF_MEMORY = "measured", "out of memory"


def measure_cell(cfg: DictConfig) -> dict[str, Any]:
    """Time the training step of `cfg` on random slices that lie on the device already.

    Returns:
        The status, median time of a step (msec), images per second, utilisation of the GPU (%)
        while the clock ran, and the hardware; the status alone where memory does not suffice.
    """
    runtime = setup_runtime(cfg)
    if not runtime.devices[0].startswith("GPU"):
        limit_memory()
    try:
        model = prepare_model(cfg)
        compile_model(model, cfg, runtime)
        batch = _random_batch(cfg)

        def step() -> None:
            model.train_on_batch(*batch)

        time_calls(step, cfg.warmup_steps, steps=0)
        with GpuUsage(runtime.devices[0]) as usage:
            step_msec = statistics.median(time_calls(step, 0, cfg.bench_steps))
    except (MemoryError, tf.errors.ResourceExhaustedError):
        return {"status": OUT_OF_MEMORY}
    return {
        "status": MEASURED,
        "step_msec": step_msec,
        "images_per_second": 1000 * cfg.HYPER_PARAMETERS.BATCH_SIZE / step_msec,
        "gpu_utilisation": usage.percent,
        "hardware": runtime.hardware[0],
    }


def _random_batch(cfg: DictConfig) -> tuple[tf.Tensor, tf.Tensor]:
    shape = (cfg.HYPER_PARAMETERS.BATCH_SIZE, cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH)
    images = tf.random.uniform((*shape, cfg.INPUT.CHANNELS), seed=cfg.SEED)
    classes = max(cfg.OUTPUT.CLASSES, 2)
    masks = tf.random.uniform(shape, maxval=classes, dtype=tf.int32, seed=cfg.SEED)
    return images, tf.cast(masks, tf.uint8)


if __name__ == "__main__":
    print(json.dumps(measure_cell(validate_config(json.load(sys.stdin)))), flush=True)

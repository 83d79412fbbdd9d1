"""Time the model call: `python benchmark_inference.py HYPER_PARAMETERS.BATCH_SIZE=8 +runs=5`."""

import statistics
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from omegaconf import DictConfig

from models.model import inference_view, model_identity, prepare_model, weights_path
from models.weights import load_weights
from utils.cli import run_command
from utils.log import console
from utils.results import run_facts, write_result
from utils.runtime import Runtime, setup_runtime
from utils.timing import time_calls


def benchmark_inference(cfg: DictConfig) -> dict:
    """Time the inference view on random slices; returns what is also written as JSON.

    Every run makes `warmup_steps` calls that do not count and `bench_steps` that do. Only the call
    is timed, with its input on the device already and until the device has finished. Needs no data,
    and weights only if `use_weights` is set.

    Raises:
        UserError: weights were asked for that do not exist or do not fit.
    """
    runtime = setup_runtime(cfg)
    model = prepare_model(cfg)
    if cfg.use_weights:
        load_weights(model, weights_path(cfg), model_identity(cfg))
    call = _model_call(inference_view(model, runtime.jit_compile), cfg, runtime)
    runs = [time_calls(call, cfg.warmup_steps, cfg.bench_steps) for _ in range(cfg.runs)]

    latency = statistics.mean(np.mean(run) for run in runs)
    result = {
        **run_facts(cfg, runtime),
        "parameters": model.count_params(),
        "latency_msec": latency,
        "throughput_samples_per_sec": 1000 * cfg.HYPER_PARAMETERS.BATCH_SIZE / latency,
        "latency_msec_median": float(np.median(runs)),
        "latency_msec_p95": float(np.percentile(runs, 95)),
        "latency_msec_of_runs": [float(np.mean(run)) for run in runs],
    }
    path = write_result(cfg, "benchmark_inference.json", result)
    console.print(
        f"{model.name} on {cfg.MODEL.BACKBONE.TYPE}, {runtime.devices[0]}, "
        f"{keras.config.dtype_policy().name}, XLA {'on' if runtime.jit_compile else 'off'}: "
        f"{cfg.runs} x {cfg.bench_steps} calls with {cfg.HYPER_PARAMETERS.BATCH_SIZE} slices each"
    )
    console.print(f"Results: {path}")
    print(f"Median latency: {result['latency_msec_median']:.2f} msec")
    print(f"95th percentile of latency: {result['latency_msec_p95']:.2f} msec")
    print(f"Latency: {latency:.2f} msec")
    print(f"Throughput/FPS: {result['throughput_samples_per_sec']:.2f} samples/sec")
    return result


def _model_call(view: keras.Model, cfg: DictConfig, runtime: Runtime) -> Callable[[], object]:
    shape = (cfg.HYPER_PARAMETERS.BATCH_SIZE, cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH, cfg.INPUT.CHANNELS)
    images = tf.random.uniform(shape, seed=cfg.SEED)
    function = tf.function(lambda x: view(x, training=False), jit_compile=runtime.jit_compile)
    return lambda: function(images)


if __name__ == "__main__":
    run_command(benchmark_inference)

"""Train UNet 3+: `python train.py MODEL.TYPE=unet3plus_deepsup MODEL.BACKBONE.TYPE=vgg19 …`."""

from dataclasses import asdict
from pathlib import Path

import keras
from omegaconf import DictConfig

from callbacks.best_weights import BestWeights
from callbacks.callback_list import build_callbacks
from callbacks.timing import TimingCallback
from data_generators.data_generator import get_data_generator
from data_preparation.slices import slice_settings
from data_preparation.verify_data import verify_data
from models.model import MONITOR, compile_model, model_identity, prepare_model, weights_path
from models.weights import save_weights
from utils.cli import run_command
from utils.log import console
from utils.paths import output_folder
from utils.results import results_folder, run_facts, write_result
from utils.runtime import setup_runtime


def train(cfg: DictConfig) -> dict:
    """Verify the data, train, keep the best weights; returns what is also written as JSON.

    Raises:
        UserError: anything about the configuration or the data that would break the run later.
    """
    verify_data(cfg, splits=("TRAIN", "VAL"))
    output_folder(weights_path(cfg).parent, "CALLBACKS.MODEL_CHECKPOINT.PATH")
    results_folder(cfg)
    runtime = setup_runtime(cfg, distribute=True)
    training = get_data_generator(cfg, "TRAIN", runtime, for_fit=True)
    validation = get_data_generator(cfg, "VAL", runtime, for_fit=True)
    with runtime.strategy.scope():
        model = prepare_model(cfg)
        compile_model(model, cfg, runtime)

    card = {
        "input_size": [cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH],
        "preparation": asdict(slice_settings(cfg)),
    }

    def save(trained: keras.Model, path: Path, facts: dict) -> None:
        save_weights(trained, path, model_identity(cfg), **card, **facts)

    checkpoint = cfg.CALLBACKS.MODEL_CHECKPOINT
    best = BestWeights(
        weights_path(cfg),
        save,
        MONITOR,
        keep_last=not checkpoint.SAVE_BEST_ONLY,
        save_model=not checkpoint.SAVE_WEIGHTS_ONLY,
    )
    timing = TimingCallback(training.global_batch)
    console.print(
        f"{model.name} on {cfg.MODEL.BACKBONE.TYPE}: {model.count_params():,} parameters, "
        f"{len(training.pairs)} training and {len(validation.pairs)} validation slices, "
        f"{training.steps} steps of {training.global_batch} slices per epoch"
    )
    history = model.fit(
        training.dataset,
        steps_per_epoch=training.steps_per_epoch,
        validation_data=validation.dataset,
        validation_steps=validation.steps_per_epoch,
        epochs=cfg.HYPER_PARAMETERS.EPOCHS,
        shuffle=False,  # the data set has the epoch's order; Keras would reorder the batches again
        verbose=cfg.VERBOSE,
        callbacks=[timing, *build_callbacks(cfg, best, MONITOR, training.start_epoch)],
    )
    result = {
        **run_facts(cfg, runtime),
        "generator": training.generator,
        "parameters": model.count_params(),
        "best": {
            "epoch": best.best_epoch,
            MONITOR: best.best_score,
            "weights": str(weights_path(cfg)),
        },
        "timing": timing.result(),
        "history": {name: [float(v) for v in values] for name, values in history.history.items()},
    }
    path = write_result(cfg, "train.json", result)
    _print_summary(result, path)
    return result


def _print_summary(result: dict, path: Path) -> None:
    timing, best = result["timing"], result["best"]
    console.print(
        f"Best {MONITOR}: {best[MONITOR]:.4f} in epoch {best['epoch']}, {best['weights']}"
    )
    console.print(f"Results: {path}")
    console.print(f"First batches, with compilation: {timing['warm_up_seconds']:.2f} sec")
    print(f"Total training time: {timing['total_seconds']:.2f} sec")
    if timing["latency_msec"] is None:
        print("Training latency: n/a (the run had no batch after the warm-up)")
        print("Training throughput/FPS: n/a")
    else:
        print(f"Training latency: {timing['latency_msec']:.2f} msec")
        print(f"Training throughput/FPS: {timing['throughput_samples_per_sec']:.2f} samples/sec")


if __name__ == "__main__":
    run_command(train)

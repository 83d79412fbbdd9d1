"""Train UNet 3+: `python train.py MODEL.TYPE=unet3plus_deepsup MODEL.BACKBONE.TYPE=vgg19 …`."""

from dataclasses import asdict
from pathlib import Path

import keras
from omegaconf import DictConfig

from callbacks.best_weights import BestWeights
from callbacks.callback_list import epoch_order, log_files
from callbacks.early_stopping import EarlyStopping
from callbacks.run_state import RunState, delete_states, read_states
from callbacks.timing import TimingCallback
from data_generators.data_generator import get_data_generator
from data_preparation.slices import slice_settings
from data_preparation.verify_data import verify_data
from models.model import MONITOR, compile_model, model_identity, prepare_model, weights_path
from models.weights import WEIGHTS_SUFFIX, save_weights
from utils.cli import run_command
from utils.errors import UserError
from utils.exhaustion import explain_exhaustion
from utils.log import console, logger
from utils.paths import output_folder
from utils.results import results_folder, run_facts, write_result
from utils.run_identity import refuse_other_run, run_identity
from utils.runtime import Runtime, setup_runtime


@explain_exhaustion
def train(cfg: DictConfig) -> dict:
    """Verify the data, train, keep the best weights; returns what is also written as JSON.

    Of several processes that train together, only the chief writes files. With RESUME, a run that
    was interrupted goes on after its last whole epoch; one that had come to its end says so, and
    only its number of epochs and its best score are returned.

    Raises:
        UserError: anything about the configuration or the data that would break the run later.
    """
    verify_data(cfg, splits=("TRAIN", "VAL"))
    runtime = setup_runtime(cfg, distribute=True)
    if runtime.is_chief:
        output_folder(weights_path(cfg).parent, "CALLBACKS.MODEL_CHECKPOINT.PATH")
        results_folder(cfg)
    training = get_data_generator(cfg, "TRAIN", runtime, for_fit=True)
    validation = get_data_generator(cfg, "VAL", runtime, for_fit=True)
    with runtime.strategy.scope():
        model = prepare_model(cfg)
        compile_model(model, cfg, runtime)

    best = _best_weights(cfg, runtime)
    stopping = EarlyStopping(MONITOR, cfg.CALLBACKS.EARLY_STOPPING.PATIENCE)
    timing = TimingCallback(training.global_batch)
    run_state = RunState(
        _state_folder(cfg),
        run_identity(cfg, runtime.precision, {"TRAIN": training.pairs, "VAL": validation.pairs}),
        {"best": best, "stopping": stopping, "timing": timing},
        writes=runtime.is_chief,
    )
    first_epoch = _first_epoch(cfg, runtime, run_state, model)
    is_over = stopping.is_over or first_epoch >= cfg.HYPER_PARAMETERS.EPOCHS
    if run_state.finished and is_over:
        key = "CALLBACKS.EARLY_STOPPING.PATIENCE" if stopping.is_over else "HYPER_PARAMETERS.EPOCHS"
        console.print(f"This run has finished after {first_epoch} epochs; more {key} goes on")
        return {"epochs": first_epoch, "best": best.state()}

    console.print(
        f"{model.name} on {cfg.MODEL.BACKBONE.TYPE}: {model.count_params():,} parameters, "
        f"{len(training.pairs)} training and {len(validation.pairs)} validation slices, "
        f"{training.steps} steps of {training.global_batch} slices per epoch"
    )
    model.fit(
        training.dataset,
        steps_per_epoch=training.steps_per_epoch,
        validation_data=validation.dataset,
        validation_steps=validation.steps_per_epoch,
        initial_epoch=first_epoch,
        epochs=first_epoch if is_over else cfg.HYPER_PARAMETERS.EPOCHS,
        shuffle=False,  # the data set has the epoch's order; Keras would reorder the batches again
        verbose=cfg.VERBOSE if runtime.is_chief else 0,
        callbacks=[
            timing,
            epoch_order(training.start_epoch),
            best,
            stopping,
            *(log_files(cfg, first_epoch) if runtime.is_chief else ()),
            run_state,
        ],
    )
    result = {
        **run_facts(cfg, runtime),
        "generator": training.generator,
        "global_batch": training.global_batch,
        "parameters": model.count_params(),
        "epochs": run_state.epoch,
        "resumed_after_epoch": first_epoch or None,
        "best": {
            "epoch": best.best_epoch,
            MONITOR: best.best_score,
            "weights": str(weights_path(cfg)),
        },
        "timing": timing.result(),
        "history": run_state.history,
    }
    if runtime.is_chief:
        path = write_result(cfg, "train.json", result)
        run_state.finish()
        _print_summary(result, path)
    return result


def _best_weights(cfg: DictConfig, runtime: Runtime) -> BestWeights:
    card = {
        "input_size": [cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH],
        "preparation": asdict(slice_settings(cfg)),
    }

    def save(trained: keras.Model, path: Path, facts: dict) -> None:
        save_weights(trained, path, model_identity(cfg), **card, **facts)

    checkpoint = cfg.CALLBACKS.MODEL_CHECKPOINT
    return BestWeights(
        weights_path(cfg),
        save if runtime.is_chief else None,
        MONITOR,
        keep_last=not checkpoint.SAVE_BEST_ONLY,
        save_model=not checkpoint.SAVE_WEIGHTS_ONLY,
    )


def _state_folder(cfg: DictConfig) -> Path:
    weights = weights_path(cfg)
    return weights.with_name(f"{weights.name.removesuffix(WEIGHTS_SUFFIX)}_state")


def _first_epoch(cfg: DictConfig, runtime: Runtime, run_state: RunState, model: keras.Model) -> int:
    """Restore an interrupted run, or start anew; returns the number of epochs behind."""
    folder = _state_folder(cfg)
    states = read_states(folder) if cfg.RESUME else []
    if states:
        refuse_other_run(states[0]["identity"], run_state.identity)
        with runtime.strategy.scope():
            run_state.restore(model, states)
        logger.info(f"RESUME: {run_state.epoch} epochs lie behind, as {folder} has it")
    elif cfg.RESUME:
        logger.info(f"RESUME: nothing to go on with in {folder}; the run starts anew")
    elif runtime.is_chief:
        delete_states(folder)
    if not runtime.is_same_everywhere(run_state.epoch):
        raise UserError(
            f"RESUME: the machines do not find the same state ({run_state.epoch} epochs in "
            f"{folder} here); all need WORK_DIR on a disk they share"
        )
    return run_state.epoch


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

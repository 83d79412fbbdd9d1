"""Train UNet 3+: `python train.py MODEL.TYPE=unet3plus_deepsup MODEL.BACKBONE.TYPE=vgg19 …`."""

from dataclasses import asdict
from pathlib import Path

import keras
import numpy as np
from keras import ops
from omegaconf import DictConfig

from callbacks.averaged_weights import AveragedWeights
from callbacks.best_weights import BestWeights
from callbacks.callback_list import (
    epoch_order,
    learning_rate_log,
    log_files,
    tensorboard_folder,
)
from callbacks.curves import write_curves
from callbacks.early_stopping import EarlyStopping
from callbacks.loss_guard import LossGuard
from callbacks.prediction_images import PredictionImages, choose_slices
from callbacks.run_screen import print_end, print_start
from callbacks.run_state import RunState, delete_states, list_states, read_states
from callbacks.timing import TimingCallback
from data_generators.data_generator import DataSplit, get_data_generator
from data_generators.slice_reader import slice_reader
from data_preparation.slices import slice_settings
from data_preparation.verify_data import verify_data
from models.inference import most_likely_class
from models.model import (
    MONITOR,
    compile_model,
    loss_of_guessing,
    model_identity,
    prepare_model,
    weights_path,
)
from models.optimizer import averages
from models.start_weights import StartWeights, find_start_weights
from models.unet3plus import MAIN_HEAD
from models.weights import WEIGHTS_SUFFIX, save_weights
from utils.case_split import validation_split
from utils.cli import run_command
from utils.errors import UserError
from utils.exhaustion import explain_exhaustion
from utils.log import console, logger
from utils.paths import output_folder
from utils.results import results_folder, run_facts, write_result
from utils.run_identity import refuse_other_run, run_identity
from utils.runtime import Runtime, setup_runtime
from utils.slice_files import cases_of


@explain_exhaustion
def train(cfg: DictConfig) -> dict:
    """Verify the data, train, keep the best weights; returns what is also written as JSON.

    Of several processes that train together, only the chief writes files. With RESUME, a run that
    was interrupted goes on after its last whole epoch; one that had come to its end says so, and
    only its number of epochs and its best score are returned.

    Raises:
        UserError: anything about the configuration or the data that would break the run later.
    """
    start = _start_weights(cfg)
    verify_data(cfg)
    runtime = setup_runtime(cfg, distribute=True)
    if runtime.is_chief:
        output_folder(weights_path(cfg).parent, "CALLBACKS.MODEL_CHECKPOINT.PATH")
        results_folder(cfg)
    training = get_data_generator(cfg, "TRAIN", runtime, for_fit=True)
    validation = get_data_generator(cfg, validation_split(cfg), runtime, for_fit=True)
    with runtime.strategy.scope():
        model = prepare_model(cfg)
        compile_model(model, cfg, runtime, training.steps)

    best = _best_weights(cfg, runtime, cases_of(training.pairs))
    stopping = EarlyStopping(MONITOR, cfg.CALLBACKS.EARLY_STOPPING.PATIENCE)
    timing = TimingCallback(training.global_batch)
    run_state = RunState(
        _state_folder(cfg),
        run_identity(cfg, runtime.precision, {"TRAIN": training.pairs, "VAL": validation.pairs}),
        {"best": best, "stopping": stopping, "timing": timing, "start": start},
        writes=runtime.is_chief,
    )
    first_epoch = _first_epoch(cfg, runtime, run_state, model)
    with runtime.strategy.scope():
        start.load(model)
    is_over = stopping.is_over or first_epoch >= cfg.HYPER_PARAMETERS.EPOCHS
    if run_state.finished and is_over:
        key = "CALLBACKS.EARLY_STOPPING.PATIENCE" if stopping.is_over else "HYPER_PARAMETERS.EPOCHS"
        console.print(f"This run has finished after {first_epoch} epochs; more {key} goes on")
        return {"epochs": first_epoch, "best": best.state()}

    if runtime.is_chief:
        print_start(
            cfg,
            runtime,
            model.count_params(),
            {"Training": training.pairs, "Validation": validation.pairs},
            f"{training.steps} batches of {training.global_batch} slices by {training.generator}",
            {"Weights": weights_path(cfg), "Results": results_folder(cfg)},
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
            _loss_guard(cfg, model, training),
            best,
            stopping,
            learning_rate_log(),
            *(_logs(cfg, first_epoch, validation) if runtime.is_chief else ()),
            AveragedWeights(averages(model)),
            run_state,
        ],
    )
    result = {
        **run_facts(cfg, runtime),
        "generator": training.generator,
        "global_batch": training.global_batch,
        "split": {
            "training_cases": cases_of(training.pairs),
            "validated_on": validation_split(cfg),
            "validation_cases": cases_of(validation.pairs),
        },
        "parameters": model.count_params(),
        "start_weights": start.state() or None,
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
        curves = path.with_name("curves.png")
        write_curves(curves, run_state.history, best.best_epoch)
        run_state.finish()
        files = {"Weights": weights_path(cfg), "Results": path, "Curves": curves}
        print_end(result, MONITOR, files)
    return result


def _loss_guard(cfg: DictConfig, model: keras.Model, training: DataSplit) -> LossGuard:
    reader = slice_reader(cfg)
    masks = np.stack([reader.read(pair)[1] for pair in training.pairs_of_step(0, 0)])
    return LossGuard(
        loss_of_guessing(model, cfg, masks),
        lambda epoch, step: [p.image.name for p in training.pairs_of_step(epoch, step)],
    )


def _logs(
    cfg: DictConfig, first_epoch: int, validation: DataSplit
) -> list[keras.callbacks.Callback]:
    def predict(trained: keras.Model, images: np.ndarray) -> np.ndarray:
        outputs = trained(images, training=False)
        return most_likely_class(ops.convert_to_numpy(outputs[MAIN_HEAD]))

    logs, count = log_files(cfg, first_epoch), cfg.CALLBACKS.TENSORBOARD.IMAGES
    if count:
        shown = choose_slices(validation.pairs, count, slice_reader(cfg).read)
        logs.append(PredictionImages(tensorboard_folder(cfg) / "images", shown, predict))
    return logs


def _best_weights(cfg: DictConfig, runtime: Runtime, training_cases: list[str]) -> BestWeights:
    card = {
        "input_size": [cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH],
        "preparation": asdict(slice_settings(cfg)),
        "training_cases": training_cases,
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


def _start_weights(cfg: DictConfig) -> StartWeights:
    """What a new run starts from; an interrupted one goes on with its own weights."""
    if not (cfg.RESUME and list_states(_state_folder(cfg))):
        return find_start_weights(cfg)
    for key, value in (("", cfg.MODEL.WEIGHTS), ("BACKBONE.", cfg.MODEL.BACKBONE.WEIGHTS)):
        if value is not None:
            logger.info(f"MODEL.{key}WEIGHTS: not read, the run to RESUME has weights of its own")
    return StartWeights()


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


if __name__ == "__main__":
    run_command(train)

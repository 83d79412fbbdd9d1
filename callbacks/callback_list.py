"""The adapter that lists what watches a training run."""

from collections.abc import Callable
from pathlib import Path

import keras
from keras import ops
from omegaconf import DictConfig

from callbacks.csv_log import keep_epochs
from utils.paths import resolve_path


def epoch_order(start_epoch: Callable[[int], None]) -> keras.callbacks.Callback:
    """Calls `start_epoch` with the number of every epoch before its first batch."""
    return keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: start_epoch(epoch))


def learning_rate_log() -> keras.callbacks.Callback:
    """Adds `learning_rate`, the one at the end of the epoch, to what later callbacks log."""

    def add(epoch: int, logs: dict) -> None:
        rate = callback.model.optimizer.learning_rate
        logs["learning_rate"] = float(ops.convert_to_numpy(rate))

    callback = keras.callbacks.LambdaCallback(on_epoch_end=add)
    return callback


def tensorboard_folder(cfg: DictConfig) -> Path:
    """Where TensorBoard's files lie."""
    return resolve_path(cfg.CALLBACKS.TENSORBOARD.PATH, cfg.WORK_DIR)


def log_files(cfg: DictConfig, first_epoch: int) -> list[keras.callbacks.Callback]:
    """TensorBoard and CSV log, going on with `first_epoch` (0 = a new run)."""
    folder = resolve_path(cfg.CALLBACKS.CSV_LOGGER.PATH, cfg.WORK_DIR)
    folder.mkdir(parents=True, exist_ok=True)
    csv_file = folder / f"training_logs_{cfg.MODEL.TYPE}.csv"
    if first_epoch:
        keep_epochs(csv_file, first_epoch)
    return [
        keras.callbacks.TensorBoard(str(tensorboard_folder(cfg)), write_graph=False),
        keras.callbacks.CSVLogger(
            str(csv_file), append=first_epoch > 0 or cfg.CALLBACKS.CSV_LOGGER.APPEND_LOGS
        ),
    ]

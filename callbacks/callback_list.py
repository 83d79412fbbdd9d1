"""The adapter that lists what watches a training run."""

from collections.abc import Callable

import keras
from omegaconf import DictConfig

from callbacks.best_weights import BestWeights
from utils.paths import resolve_path


def build_callbacks(
    cfg: DictConfig, best_weights: BestWeights, monitor: str, start_epoch: Callable[[int], None]
) -> list[keras.callbacks.Callback]:
    """Epoch order of the data, best weights, early stopping, TensorBoard and CSV log.

    `start_epoch` is called with the number of every epoch before its first batch. Early stopping
    watches the same score as the checkpoint.
    """
    logs = resolve_path(cfg.CALLBACKS.CSV_LOGGER.PATH, cfg.WORK_DIR)
    logs.mkdir(parents=True, exist_ok=True)
    return [
        keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: start_epoch(epoch)),
        best_weights,
        keras.callbacks.EarlyStopping(
            monitor, mode="max", patience=cfg.CALLBACKS.EARLY_STOPPING.PATIENCE, verbose=1
        ),
        keras.callbacks.TensorBoard(
            str(resolve_path(cfg.CALLBACKS.TENSORBOARD.PATH, cfg.WORK_DIR)), write_graph=False
        ),
        keras.callbacks.CSVLogger(
            str(logs / f"training_logs_{cfg.MODEL.TYPE}.csv"),
            append=cfg.CALLBACKS.CSV_LOGGER.APPEND_LOGS,
        ),
    ]

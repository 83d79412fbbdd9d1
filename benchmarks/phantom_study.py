"""Which variant, which loss: every pair trained and scored on the same phantom scans.

`nohup python -m benchmarks.phantom_study &` takes about 50 minutes on two CPU cores. It goes
on where it was stopped: runs that phantom_results.csv has under the same settings are kept.

12 scans are trained on, 3 choose the epoch, 6 others are scored, all drawn once.
"""

import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from benchmarks.phantom_table import COLUMNS, RESULTS, read_rows, study_tables
from configs.schema import ModelType
from data_preparation.preprocess_data import preprocess_data
from data_preparation.processes import run_in_processes
from data_preparation.synthetic import write_phantoms
from utils.cli import compose_config
from utils.log import progress, setup_logging
from utils.paths import write_csv

WORK = Path(__file__).resolve().parents[1] / "demo" / "study"
LOSSES = {
    "unet3p_hybrid": (),
    "reference": ("LOSS.TYPE=reference",),
    "focal": ("LOSS.MS_SSIM.ENABLED=False", "LOSS.IOU.ENABLED=False"),
}
SEEDS = (1, 2, 3, 4, 5, 6)
SETTINGS = (
    "+experiment=phantom",
    "PHANTOM.TRAIN_CASES=12",
    "PHANTOM.VAL_CASES=6",
    "PHANTOM.SIZE=64",
    "PHANTOM.SLICES=20",
    "INPUT.HEIGHT=64",
    "INPUT.WIDTH=64",
    "HYPER_PARAMETERS.BATCH_SIZE=8",
    "HYPER_PARAMETERS.EPOCHS=12",
    # As in +experiment=paper, like the weights of 1 for all heads and the module. With Adam at 4e-3
    # this network learns as fast without the other heads, which then gain nothing.
    "HYPER_PARAMETERS.OPTIMIZER=sgd",
    "HYPER_PARAMETERS.LEARNING_RATE=1e-2",
    "HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE.TYPE=cosine",
    "OUTPUT.CLASSES=1",
    # Without an average of the weights, chance moves a run's Dice by as much as losses differ:
    # a last bit that rounds otherwise, or which of the late epochs the 3 scans happen to prefer
    "HYPER_PARAMETERS.EMA=0.95",
    "VERBOSE=0",
)
# The scans that choose the epoch: other patients, as their seed is another
VALIDATION = (
    "DATASET.VAL.IMAGES_PATH=demo/validation/images",
    "DATASET.VAL.MASK_PATH=demo/validation/mask",
)
VALIDATION_SCANS = (
    "DATA_PREPARATION.SCANS_TRAIN_DATA_PATH=null",
    "DATA_PREPARATION.SCANS_VAL_DATA_PATH=demo/validation/scans",
    "PHANTOM.VAL_CASES=3",
    "SEED=6",
)
FINGERPRINT = hashlib.sha256(
    json.dumps([LOSSES, SETTINGS, VALIDATION, VALIDATION_SCANS]).encode()
).hexdigest()[:8]


class Cell(NamedTuple):
    """One run of the study."""

    variant: str
    loss: str
    seed: int

    def config(self, *overrides: str) -> DictConfig:
        """The run's configuration; its files lie in a folder of its own."""
        folder = "-".join(map(str, self))
        paths = ("RESULTS_PATH", *(f"CALLBACKS.{name}.PATH" for name in
                 ("MODEL_CHECKPOINT", "CSV_LOGGER", "TENSORBOARD")))  # fmt: skip
        return _compose(
            f"MODEL.TYPE={self.variant}",
            f"SEED={self.seed}",
            *LOSSES[self.loss],
            *(f"{path}={folder}" for path in paths),
            *overrides,
        )


def main() -> None:
    """Run what is missing, write every finished run at once, print the tables."""
    setup_logging(verbose=1)
    cells = [Cell(*values) for values in product(map(str, ModelType), LOSSES, SEEDS)]
    rows = {Cell(row["variant"], row["loss"], int(row["seed"])): row for row in _kept_rows()}
    missing = sorted((cell for cell in cells if cell not in rows), key=lambda cell: cell.seed)
    if missing:
        _draw_scans()
    runs = run_in_processes(run_in_own_process, missing, os.cpu_count() or 1)
    for cell, row in progress(runs, "Phantom study", len(missing), "run", verbose=1):
        if row is None:
            raise RuntimeError(f"{cell}: its process died")
        rows[cell] = row
        write_csv(RESULTS, [rows[each] for each in cells if each in rows])
    print(study_tables(read_rows()))


def run_in_own_process(cell: Cell) -> dict[str, Any]:
    """`run` in a new process, since TensorFlow keeps memory and state for the whole of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(run, cell).result()


def run(cell: Cell) -> dict[str, Any]:
    """Train and score one cell; returns its row of the results."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"  # runs are parallel already, and small
    from evaluate import evaluate  # TensorFlow is only needed in the process of a run
    from train import train

    started = time.perf_counter()
    trained = train(cell.config(*VALIDATION))
    summary = evaluate(cell.config())
    liver = summary["scans"]["liver"]
    values = (
        *cell,
        round(liver["dice"]["mean"], 5),
        round(liver["dice"]["sd"], 5),
        round(liver["dice_global"], 5),
        summary["slices"]["false_positive_voxels_empty_slices"],
        trained["epochs"],
        round(time.perf_counter() - started),
        trained["parameters"],
        FINGERPRINT,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _compose(*overrides: str) -> DictConfig:
    return compose_config(*SETTINGS, f"WORK_DIR={WORK}", *overrides)


def _draw_scans() -> None:
    for overrides in ((), (*VALIDATION, *VALIDATION_SCANS)):
        cfg = _compose(*overrides)
        write_phantoms(cfg)
        preprocess_data(cfg)


def _kept_rows() -> Iterator[dict[str, str]]:
    if RESULTS.is_file():
        yield from (row for row in read_rows() if row["settings"] == FINGERPRINT)


if __name__ == "__main__":
    main()

"""Slices per second from PNG files, against a plain loop that reads one file after the other.

`python -m benchmarks.input`; `python -m benchmarks.input FOLDER TF_GENERATOR 2` prints by how many
MB the memory of a process grows that reads the slices in FOLDER several times.
"""

import sys
from collections.abc import Iterator
from itertools import chain, count, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np
from omegaconf import DictConfig

from benchmarks.measure import printed_number, report, resident_memory, seconds_per_item
from data_generators.dali_data_generator import import_dali
from data_generators.data_generator import get_data_generator
from data_preparation.preprocess_data import preprocess_data
from data_preparation.synthetic import write_phantoms
from utils.config import validate_config
from utils.errors import UserError
from utils.runtime import setup_runtime
from utils.slice_files import SlicePair, list_split

SLICES, BATCH, TARGET = 192, 16, ">= 4"
TURNS, BATCHES, MADE_AHEAD = 7, 24, 8  # of every reader
EPOCHS, WARM_UP_EPOCHS = 12, 4  # of the growth of memory
READERS = [("TF_GENERATOR", 1), ("TF_GENERATOR", 2), ("DALI_GENERATOR", 2)]


def configuration(folder: Path, generator: str = "TF_GENERATOR", workers: int = 1) -> DictConfig:
    """A phantom of about 192 slices of 320 x 320 px in `folder`, read by `generator`."""
    return validate_config(
        {
            "WORK_DIR": str(folder),
            "DATA_GENERATOR_TYPE": generator,
            "DATALOADER_WORKERS": workers,
            "HYPER_PARAMETERS": {"BATCH_SIZE": BATCH},
            "DATA_PREPARATION": {"SCANS_VAL_DATA_PATH": None},
            "PHANTOM": {"TRAIN_CASES": 1, "SIZE": 320, "SLICES": SLICES},
            "VERBOSE": 0,
        }
    )


def straight_copies(pairs: list[SlicePair], folder: Path) -> list[SlicePair]:
    """The same slices in `folder`, as cv2.imwrite writes them when not told how."""
    folder.mkdir()
    copies = [SlicePair(*(folder / path.name for path in pair)) for pair in pairs]
    for paths in chain.from_iterable(map(zip, pairs, copies)):
        source, copy = map(str, paths)
        cv2.imwrite(copy, cv2.imread(source, cv2.IMREAD_UNCHANGED))
    return copies


def straight_batches(pairs: list[SlicePair], size: int, classes: int) -> Iterator[tuple]:
    """What the predecessor does: everything for one slice after the other, in one thread."""
    for start in range(0, len(pairs) - BATCH + 1, BATCH):
        images, masks = [], []
        for pair in pairs[start : start + BATCH]:
            image = cv2.cvtColor(cv2.imread(str(pair.image)), cv2.COLOR_BGR2RGB)
            images.append(cv2.resize(image, (size, size)) / 255.0)
            mask = cv2.imread(str(pair.mask), cv2.IMREAD_GRAYSCALE)
            mask = cv2.resize(mask, (size, size), interpolation=cv2.INTER_NEAREST)
            masks.append(np.eye(classes)[mask])
        yield np.stack(images).astype(np.float32), np.stack(masks).astype(np.float32)


def endless_batches(cfg: DictConfig) -> tuple[Iterator, int]:
    """The batches that `fit` would take, from a reader just started, and the steps of an epoch."""
    split = get_data_generator(cfg, "TRAIN", setup_runtime(cfg), for_fit=True)
    return iter(split.dataset), split.steps


def memory_growth(cfg: DictConfig) -> float:
    """Growth of the resident memory over 8 epochs, MB, after 4 that do not count."""
    (batches, steps), sizes = endless_batches(cfg), []
    for _ in range(EPOCHS):
        for _ in islice(batches, steps):
            pass
        sizes.append(1024 * resident_memory())
    return sizes[-1] - sizes[WARM_UP_EPOCHS - 1]


def readers() -> list[tuple[str, int]]:
    """Generator and number of workers of those that work here."""
    try:
        import_dali()
    except UserError as error:
        print(error)
        return READERS[:-1]
    return READERS


def main() -> None:
    """Measure, print, write."""
    cv2.setNumThreads(1)
    with TemporaryDirectory() as folder:
        cfg = configuration(Path(folder))
        write_phantoms(cfg)
        preprocess_data(cfg)
        pairs = straight_copies(list_split(cfg, "TRAIN"), Path(folder) / "plain")
        epochs = (straight_batches(pairs, cfg.INPUT.HEIGHT, 2) for _ in count())
        streams = {"plain loop": chain.from_iterable(epochs)}
        growth = {"plain loop": None}
        for generator, workers in readers():
            name = f"{generator}, {workers} worker{'s' * (workers > 1)}"
            own = configuration(Path(folder), generator, workers)
            streams[name], _ = endless_batches(own)
            growth[name] = printed_number("benchmarks.input", folder, generator, workers)
        seconds = seconds_per_item(streams, TURNS, BATCHES, MADE_AHEAD)
    speed = {name: BATCH / value for name, value in seconds.items()}
    rows = [
        {
            "reader": name,
            "slices/s": round(speed[name]),
            "ratio": round(speed[name] / speed["plain loop"], 2),
            "target": TARGET if name.endswith("2 workers") else "",
            "memory growth, MB": growth[name] and round(growth[name], 1),
        }
        for name in streams
    ]
    report("input", f"Slices of 320 x 320 px, RGB, PNG, in batches of {BATCH}", rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        source, kind, threads = sys.argv[1:]
        print(memory_growth(configuration(Path(source), kind, int(threads))))
    else:
        main()

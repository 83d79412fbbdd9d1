"""Whether the slices of TRAIN and VAL can be trained on: every problem at once, before training.

Usage, from the project's folder:
    python data_preparation/verify_data.py [OUTPUT.CLASSES=3 ...]
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from omegaconf import DictConfig

if not __package__:  # run by path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from utils.cli import run_command
from utils.errors import UserError
from utils.images import case_and_slice, read_image, read_mask, to_class_ids
from utils.log import logger, print_table, progress
from utils.paths import natural_key
from utils.slice_files import SlicePair, list_split

SPLITS = ("TRAIN", "VAL")


@dataclass(frozen=True)
class SliceRules:
    """What a pair must keep to.

    Attributes:
        channels: of the image.
        size: (height, width) in px; None where slices are resized while loading.
        classes: `OUTPUT.CLASSES`.
        normalize_value: divides mask values; None where they are class ids already.
    """

    channels: int
    size: tuple[int, int] | None
    classes: int
    normalize_value: int | None


class PairCheck(NamedTuple):
    """Problems of a pair, and the pixels of each class where there is none in the mask."""

    problems: list[str]
    pixels: np.ndarray


def verify_data(cfg: DictConfig, splits: Sequence[str] = SPLITS) -> None:
    """Check every pair of the splits and print what they hold.

    Raises:
        UserError: lists images or masks that are missing or cannot be decoded, sizes and label
            values that do not fit the configuration, and cases that are in more than one split.
    """
    rules = _slice_rules(cfg)
    problems, rows, cases = [], [], {}
    for split in splits:
        try:
            pairs = _list_pairs(cfg, split)
        except UserError as error:
            problems.append(str(error))
            continue
        cases[split] = {case_and_slice(pair.image)[0] for pair in pairs}
        checks = _check_pairs(pairs, rules, cfg.DATALOADER_WORKERS, split, cfg.VERBOSE)
        problems += [problem for check in checks for problem in check.problems]
        pixels = np.stack([check.pixels for check in checks])
        rows += _summary(split, len(cases[split]), pixels)
        if not pixels[:, 1:].any():
            logger.warning(
                f"DATASET.{split}.MASK_PATH: no mask has any foreground; a Dice coefficient over "
                "them is 1 as long as nothing is predicted, and 0 otherwise"
            )

    shared = _shared_cases(cases)
    if cfg.DATASET.ALLOW_SHARED_CASES:
        for sentence in shared:
            logger.warning(sentence)
    else:
        problems += [f"{s}; DATASET.ALLOW_SHARED_CASES=True permits it" for s in shared]
    if problems:
        raise UserError.listing("The data has problems", problems)
    if cfg.VERBOSE:
        columns = ["Split", "Cases", "Slices", "Class", "Share of pixels", "Share of slices"]
        print_table("Data", columns, rows)


def check_pair(pair: SlicePair, rules: SliceRules) -> PairCheck:
    """Decode an image and its mask and hold them against the rules."""
    problems, sizes = [], []
    pixels = np.zeros(max(rules.classes, 2), np.int64)
    try:
        image = read_image(pair.image, rules.channels)
        sizes.append((pair.image, image.shape[:2]))
    except UserError as error:
        problems.append(str(error))
    try:
        mask = read_mask(pair.mask)
        sizes.append((pair.mask, mask.shape))
        ids = to_class_ids(mask, rules.classes, rules.normalize_value, pair.mask)
        pixels = np.bincount(ids.ravel(), minlength=pixels.size)
    except UserError as error:
        problems.append(str(error))

    if len(sizes) == 2 and sizes[0][1] != sizes[1][1]:
        (image_file, image_size), (_, mask_size) = sizes
        problems.append(
            f"{image_file}: found {_px(image_size)} px, but its mask has {_px(mask_size)}"
        )
    elif rules.size and sizes and sizes[0][1] != rules.size:
        file, size = sizes[0]
        problems.append(
            f"{file}: found {_px(size)} px; INPUT.HEIGHT x INPUT.WIDTH is {_px(rules.size)}; "
            "prepare slices of that size, or set PREPROCESS_DATA.RESIZE.VALUE=True"
        )
    return PairCheck(problems, pixels)


def _px(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _slice_rules(cfg: DictConfig) -> SliceRules:
    preprocess = cfg.PREPROCESS_DATA
    normalize = preprocess.NORMALIZE_MASK
    return SliceRules(
        channels=cfg.INPUT.CHANNELS,
        size=None if preprocess.RESIZE.VALUE else (cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH),
        classes=cfg.OUTPUT.CLASSES,
        normalize_value=normalize.NORMALIZE_VALUE if normalize.VALUE else None,
    )


def _list_pairs(cfg: DictConfig, split: str) -> list[SlicePair]:
    pairs = list_split(cfg, split)
    if cfg.DATASET[split].MASK_PATH is None:
        raise UserError(f"DATASET.{split}.MASK_PATH: found null; {split} needs masks")
    return pairs


def _check_pairs(
    pairs: list[SlicePair], rules: SliceRules, threads: int, split: str, verbose: int
) -> list[PairCheck]:
    with ThreadPoolExecutor(threads) as pool:
        checks = pool.map(lambda pair: check_pair(pair, rules), pairs)
        return list(progress(checks, f"Checking {split}", len(pairs), "slice", verbose))


def _summary(split: str, cases: int, pixels: np.ndarray) -> list[list[object]]:
    """Rows of the table; `pixels` has shape (slices, classes)."""
    pixel_share = pixels.sum(axis=0) / max(pixels.sum(), 1)
    slice_share = (pixels > 0).mean(axis=0)
    return [
        [split, cases, len(pixels), class_id, float(pixel_share[class_id]), float(share)]
        for class_id, share in enumerate(slice_share)
    ]


def _shared_cases(cases: dict[str, set[str]], shown: int = 20) -> list[str]:
    sentences = []
    for (first, ids), (second, others) in combinations(cases.items(), 2):
        if shared := sorted(ids & others, key=natural_key):
            more = ", …" if len(shared) > shown else ""
            sentences.append(
                f"DATASET: {first} and {second} share {len(shared)} cases: "
                f"{', '.join(shared[:shown])}{more}"
            )
    return sentences


if __name__ == "__main__":
    run_command(verify_data)

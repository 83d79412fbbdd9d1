"""Whether the slices of all splits can be trained on: every problem at once, before training.

Usage, from the project's folder:
    python data_preparation/verify_data.py [OUTPUT.CLASSES=3 ...]
"""

import hashlib
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from omegaconf import DictConfig

if not __package__:  # run by path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data_preparation.split_leaks import SliceContent, find_leaks
from utils.case_split import HELD_OUT, TRAIN, VAL, is_carved
from utils.cli import run_command
from utils.errors import UserError
from utils.images import read_image, read_mask, to_class_ids
from utils.log import logger, print_table, progress
from utils.slice_files import SlicePair, cases_of, list_split, source_section


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
    """Problems of a pair, and the pixels of each class where there is none in the mask.

    `digest` is of the image's bytes, None for an image of one grey value or none at all.
    """

    problems: list[str]
    pixels: np.ndarray
    digest: bytes | None


def verify_data(cfg: DictConfig, splits: Sequence[str] | None = None) -> None:
    """Check every pair of the splits and print what they hold.

    The splits are those in use: TRAIN and VAL, or, with `DATASET.SPLIT`, TRAIN, HELD_OUT and, if it
    is there already, VAL.

    Raises:
        UserError: lists images or masks that are missing or cannot be decoded, sizes and label
            values that do not fit the configuration, and cases or images that are in more than one
            split.
    """
    rules = _slice_rules(cfg)
    problems, rows, contents = [], [], {}
    for split in splits or ((TRAIN, HELD_OUT, VAL) if is_carved(cfg) else (TRAIN, VAL)):
        try:
            pairs = _list_pairs(cfg, split)
        except UserError as error:
            if split == VAL and is_carved(cfg):
                logger.warning(f"VAL is not checked, training does without it: {error}")
            elif str(error) not in problems:
                problems.append(str(error))
            continue
        checks = _check_pairs(pairs, rules, cfg.DATALOADER_WORKERS, split, cfg.VERBOSE)
        problems += [problem for check in checks for problem in check.problems]
        contents[split] = [
            SliceContent(pair.image, check.digest)
            for pair, check in zip(pairs, checks, strict=True)
        ]
        rows += _summary(split, len(cases_of(pairs)), np.stack([check.pixels for check in checks]))

    shared = find_leaks(contents)
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
    problems, sizes, digest = [], [], None
    pixels = np.zeros(max(rules.classes, 2), np.int64)
    try:
        image = read_image(pair.image, rules.channels)
        sizes.append((pair.image, image.shape[:2]))
        if image.min() < image.max():
            digest = hashlib.sha256(pair.image.read_bytes()).digest()
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
    return PairCheck(problems, pixels, digest)


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
    section = source_section(split)
    if cfg.DATASET[section].MASK_PATH is None:
        raise UserError(f"DATASET.{section}.MASK_PATH: found null; {split} needs masks")
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


if __name__ == "__main__":
    run_command(verify_data)

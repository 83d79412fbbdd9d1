"""Whether the slices of all splits can be trained on: every problem at once, before training.

Usage, from the project's folder:
    python data_preparation/verify_data.py [OUTPUT.CLASSES=3 ...]
"""

import sys
from collections.abc import Sequence
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
from utils.images import to_class_ids
from utils.log import logger, print_table
from utils.slice_files import SlicePair, cases_of, list_split, source_section
from utils.slice_index import ImageFacts, MaskFacts, image_facts, mask_facts


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


def verify_data(cfg: DictConfig, splits: Sequence[str] | None = None) -> None:
    """Check every pair of the splits and print what they hold.

    The splits are those in use: TRAIN and VAL, or, with `DATASET.SPLIT`, TRAIN, HELD_OUT and, if it
    is there already, VAL. Files that have been checked before and have not changed since are not
    decoded again (`utils.slice_index`).

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
        images = image_facts(
            [pair.image for pair in pairs], rules.channels, f"{split} images", cfg.VERBOSE
        )
        masks = mask_facts([pair.mask for pair in pairs], f"{split} masks", cfg.VERBOSE)
        checks = [_check(*facts, rules) for facts in zip(pairs, images, masks, strict=True)]
        found = [problem for check in checks for problem in check.problems]
        problems += found
        contents[split] = [
            SliceContent(pair.image, facts.digest)
            for pair, facts in zip(pairs, images, strict=True)
            if isinstance(facts, ImageFacts)
        ]
        pixels = np.stack([check.pixels for check in checks])
        rows += _summary(split, len(cases_of(pairs)), pixels)
        if not found and not pixels[:, 1:].any():
            logger.warning(
                f"DATASET.{source_section(split)}.MASK_PATH: no mask has any foreground; a Dice "
                "coefficient over them is 1 as long as nothing is predicted, and 0 otherwise"
            )

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


def _check(
    pair: SlicePair, image: ImageFacts | UserError, mask: MaskFacts | UserError, rules: SliceRules
) -> PairCheck:
    problems = [str(facts) for facts in (image, mask) if isinstance(facts, UserError)]
    pixels = np.zeros(max(rules.classes, 2), np.int64)
    if isinstance(mask, MaskFacts):
        values = np.uint16(mask.values)
        try:
            ids = to_class_ids(values, rules.classes, rules.normalize_value, pair.mask)
            pixels[ids] = mask.pixels
        except UserError as error:
            problems.append(str(error))

    sizes = [
        (file, (facts.height, facts.width))
        for file, facts in zip(pair, (image, mask), strict=True)
        if not isinstance(facts, UserError)
    ]
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
    section = source_section(split)
    if cfg.DATASET[section].MASK_PATH is None:
        raise UserError(f"DATASET.{section}.MASK_PATH: found null; {split} needs masks")
    return pairs


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

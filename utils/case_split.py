"""Validation cases carved out of TRAIN: whole cases, chosen by a seed.

Slices of one patient resemble each other, so that a split by slice would score a network on what it
has learnt by heart. With DATASET.VAL kept for the end, a run that stops early or keeps its best
weights does so by cases of its own.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from omegaconf import DictConfig

from utils.errors import UserError
from utils.paths import natural_key

TRAIN, VAL, HELD_OUT = "TRAIN", "VAL", "HELD_OUT"


def is_carved(cfg: DictConfig) -> bool:
    """Whether `DATASET.SPLIT` keeps cases of TRAIN from training."""
    return bool(_methods(cfg.DATASET.SPLIT))


def validation_split(cfg: DictConfig) -> str:
    """What training validates on: HELD_OUT where cases are carved out of TRAIN, otherwise VAL."""
    return HELD_OUT if is_carved(cfg) else VAL


def split_problems(split: DictConfig) -> list[str]:
    """What is wrong with the section `DATASET.SPLIT` as such, whatever the cases are."""
    problems, methods = [], _methods(split)
    if len(methods) > 1:
        problems.append(f"DATASET.SPLIT: found {' and '.join(methods)}; set one of them")
    if split.FOLDS == 1:
        problems.append("DATASET.SPLIT.FOLDS: found 1; expected 2 or more, or 0 for none")
    elif split.FOLDS and split.FOLD >= split.FOLDS:
        problems.append(
            f"DATASET.SPLIT.FOLD: found {split.FOLD}; with FOLDS={split.FOLDS} expected 0 to "
            f"{split.FOLDS - 1}"
        )
    return problems


def held_out_cases(slices_per_case: Mapping[str, int], split: DictConfig) -> set[str]:
    """The cases that `DATASET.SPLIT` carves out for validation.

    Args:
        slices_per_case: number of slices by case id.
        split: the section `DATASET.SPLIT`, in which one method is set.

    Raises:
        UserError: the file names do not tell cases, a case is not there, there are fewer cases than
            folds, or none is left to train on.
    """
    cases = sorted(slices_per_case, key=natural_key)
    if max(slices_per_case.values()) == 1:
        raise UserError(
            f"DATASET.SPLIT: each of the {len(cases)} slices in DATASET.TRAIN would be a case of "
            "its own; name them image_<case>_<slice>, so that slices of one case stay together"
        )
    if split.VAL_CASES is not None:
        held_out = _named_cases(list(split.VAL_CASES), cases)
    elif split.FOLDS:
        held_out = deal_into_folds(slices_per_case, split.FOLDS, split.SEED)[split.FOLD]
    else:
        count = max(1, round(split.VAL_FRACTION * len(cases)))
        held_out = np.random.default_rng(split.SEED).permutation(cases)[:count].tolist()
    if len(held_out) == len(cases):
        raise UserError(
            f"DATASET.SPLIT: all {len(cases)} cases of DATASET.TRAIN are held out for validation; "
            "none is left to train on"
        )
    return set(held_out)


def deal_into_folds(slices_per_case: Mapping[str, int], folds: int, seed: int) -> list[list[str]]:
    """Every case in one of `folds` lists of equal length (or one less) and of like size in slices.

    From the largest case down, each round of `folds` cases is dealt to the folds at random.

    Raises:
        UserError: there are fewer cases than folds.
    """
    by_size = sorted(slices_per_case, key=lambda case: (-slices_per_case[case], natural_key(case)))
    if len(by_size) < folds:
        raise UserError(
            f"DATASET.SPLIT.FOLDS: found {folds}; DATASET.TRAIN has only {len(by_size)} cases"
        )
    rng = np.random.default_rng(seed)
    dealt: list[list[str]] = [[] for _ in range(folds)]
    for start in range(0, len(by_size), folds):
        for case, fold in zip(by_size[start:], rng.permutation(folds), strict=False):
            dealt[fold].append(case)
    return dealt


def _methods(split: DictConfig) -> list[str]:
    is_set = {
        "VAL_FRACTION": split.VAL_FRACTION > 0,
        "VAL_CASES": split.VAL_CASES is not None,
        "FOLDS": split.FOLDS > 0,
    }
    return [name for name, value in is_set.items() if value]


def _named_cases(wanted: list[str], cases: Iterable[str]) -> list[str]:
    unknown = sorted(set(wanted).difference(cases), key=natural_key)
    if unknown or not wanted:
        found = ", ".join(unknown) or "an empty list"
        raise UserError(
            f"DATASET.SPLIT.VAL_CASES: found {found}; DATASET.TRAIN has the cases "
            f"{', '.join(cases)}"
        )
    return list(dict.fromkeys(wanted))

"""Which slices hold an organ: as the preparation has recorded it, otherwise from the masks."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from utils.case_records import cases_file, read_cases
from utils.images import case_and_slice, read_mask
from utils.log import progress
from utils.slice_files import SlicePair

# Field of a case's record: a character per slice, 1 where its mask holds more than background
FOREGROUND = "foreground"


def has_foreground(pairs: Sequence[SlicePair], threads: int, verbose: int) -> np.ndarray:
    """Whether the mask of every pair holds a class other than background; bool of shape (pairs,).

    A mask that is younger than the cases.json beside the images, or unknown to it, is read. A slice
    without a mask file has none.

    Raises:
        UserError: a mask, or the cases.json, cannot be read.
    """
    records = {folder: _Records(folder) for folder in {pair.image.parent for pair in pairs}}
    known = [records[pair.image.parent].flag(pair) for pair in pairs]
    unknown = [pair.mask for pair, flag in zip(pairs, known, strict=True) if flag is None]
    if unknown:
        with ThreadPoolExecutor(threads) as pool:
            read = pool.map(lambda mask: bool(read_mask(mask).any()), unknown)
            flags = iter(list(progress(read, "Masks", len(unknown), "mask", verbose)))
        known = [next(flags) if flag is None else flag for flag in known]
    return np.array(known, bool)


class _Records:
    """What the cases.json of a folder of images, if there is one, says about its slices."""

    def __init__(self, images_folder: Path):
        path = cases_file(images_folder)
        self._cases: dict[str, dict[str, Any]] = read_cases(path) if path.is_file() else {}
        self._written = path.stat().st_mtime_ns if self._cases else 0

    def flag(self, pair: SlicePair) -> bool | None:
        """Whether the slice has foreground; None where that is not known for sure."""
        if pair.mask is None:
            return False
        case, number = case_and_slice(pair.image)
        flags = self._cases.get(case, {}).get(FOREGROUND, "")
        if number >= len(flags) or pair.mask.stat().st_mtime_ns > self._written:
            return None
        return flags[number] == "1"

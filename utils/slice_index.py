"""What every slice file holds, remembered beside the files, so that each is decoded only once.

A folder of slices gets a hidden `.slice_index.json`. A file whose size and time of writing are
still those of its entry is not decoded again. Only undamaged files have entries. The index may be
deleted at any time, and is done without where it cannot be written.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from utils.errors import UserError
from utils.images import read_image, read_mask
from utils.log import logger, progress
from utils.paths import write_bytes
from utils.slice_files import SlicePair

INDEX_NAME = ".slice_index.json"
_FORMAT = 1
# Within one tick of a disk's clock (2 s on FAT) a file may change and keep its time of writing
_CLOCK_TICK_NS = 2_000_000_000


class ImageFacts(NamedTuple):
    """Size of an image, px, and the SHA-256 of its file, None where it has one grey value only."""

    height: int
    width: int
    digest: str | None


class MaskFacts(NamedTuple):
    """Size of a mask, px, its values as the file stores them, and how many pixels have each."""

    height: int
    width: int
    values: list[int]
    pixels: list[int]


Facts = TypeVar("Facts", ImageFacts, MaskFacts)


def image_facts(
    files: Sequence[Path], channels: int, description: str = "", verbose: int = 0
) -> list[ImageFacts | UserError]:
    """What `read_image` finds in each file, or the error that it raises."""

    def read(path: Path) -> ImageFacts:
        image = read_image(path, channels)
        is_uniform = image.min() == image.max()
        digest = None if is_uniform else hashlib.sha256(path.read_bytes()).hexdigest()
        height, width = image.shape[:2]
        return ImageFacts(height, width, digest)

    return _facts(files, f"image_{channels}", ImageFacts, read, description, verbose)


def mask_facts(
    files: Sequence[Path], description: str = "", verbose: int = 0
) -> list[MaskFacts | UserError]:
    """What `read_mask` finds in each file, or the error that it raises."""

    def read(path: Path) -> MaskFacts:
        mask = read_mask(path)
        pixels = np.bincount(mask.ravel())
        values = np.flatnonzero(pixels)
        height, width = mask.shape
        return MaskFacts(height, width, values.tolist(), pixels[values].tolist())

    return _facts(files, "mask", MaskFacts, read, description, verbose)


def has_foreground(
    pairs: Sequence[SlicePair], description: str = "", verbose: int = 0
) -> np.ndarray:
    """Whether the mask of every pair holds a class other than background; bool of shape (pairs,).

    A slice without a mask file has none.

    Raises:
        UserError: lists the masks that are missing, damaged or of colour.
    """
    masks = {pair.mask: False for pair in pairs if pair.mask is not None}
    found = dict(zip(masks, mask_facts(list(masks), description, verbose), strict=True))
    problems = []
    for mask, facts in found.items():
        if isinstance(facts, UserError):
            problems.append(str(facts))
        else:
            masks[mask] = any(facts.values)
    if problems:
        raise UserError.listing("Masks cannot be read", problems)
    return np.array([pair.mask is not None and masks[pair.mask] for pair in pairs], bool)


class _FolderIndex(Generic[Facts]):
    """The entries of one kind (image or mask) in one folder."""

    def __init__(self, folder: Path, kind: str, facts_type: type[Facts]):
        self._folder = folder
        self._facts_type: type[Facts] = facts_type
        self._path = folder / INDEX_NAME
        self._trusted_before = 0
        self._kinds = self._read()
        self._entries = self._kinds.setdefault(kind, {})
        self._states: dict[str, list[int]] = {}

    def _read(self) -> dict[str, dict[str, list]]:
        try:
            self._trusted_before = self._path.stat().st_mtime_ns - _CLOCK_TICK_NS
            content = json.loads(self._path.read_bytes())
            if content["format"] == _FORMAT:
                return content["entries"]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none yet, damaged, or of another version: everything is looked at
        return {}

    def find(self, file: Path) -> Facts | None:
        """The facts of `file` if they still hold; also notes the file's present state."""
        try:
            status = file.stat()
        except OSError:
            return None
        self._states[file.name] = [status.st_size, status.st_mtime_ns]
        state, facts = self._entries.get(file.name, (None, ()))
        if state != self._states[file.name] or status.st_mtime_ns >= self._trusted_before:
            return None
        return self._facts_type(*facts)

    def write(self, found: dict[str, Facts]) -> None:
        """Add what was found, leave out files that are gone, and write the index in one step."""
        present = {entry.name for entry in os.scandir(self._folder)}
        self._entries |= {name: [self._states[name], facts] for name, facts in found.items()}
        kinds = {
            kind: {name: entry for name, entry in entries.items() if name in present}
            for kind, entries in self._kinds.items()
        }
        content = json.dumps({"format": _FORMAT, "entries": kinds}, separators=(",", ":"))
        try:
            write_bytes(self._path, content.encode())
        except UserError as error:
            logger.info(f"{error}; its slices are checked anew each time")


def _facts(
    files: Sequence[Path],
    kind: str,
    facts_type: type[Facts],
    read: Callable[[Path], Facts],
    description: str,
    verbose: int,
) -> list[Facts | UserError]:
    def look(file: Path) -> Facts | UserError:
        try:
            return read(file)
        except UserError as error:
            return error

    indices = {f: _FolderIndex(f, kind, facts_type) for f in {file.parent for file in files}}
    known = {file: indices[file.parent].find(file) for file in files}
    found: dict[Path, Facts | UserError] = {f: facts for f, facts in known.items() if facts}
    unknown = [file for file in known if file not in found]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        bar = verbose if unknown else 0
        looks = progress(pool.map(look, unknown), description, len(unknown), "file", bar)
        found |= zip(unknown, looks, strict=True)
    new: dict[Path, dict[str, Facts]] = {}
    for file in unknown:
        facts = found[file]
        if not isinstance(facts, UserError):
            new.setdefault(file.parent, {})[file.name] = facts
    for folder, facts_by_name in new.items():
        indices[folder].write(facts_by_name)
    return [found[file] for file in files]

"""The one list of image and mask files: used by every generator, by step counting and by checks."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig

from utils.case_split import HELD_OUT, TRAIN, VAL, held_out_cases, is_carved
from utils.errors import UserError
from utils.images import IMAGE_SUFFIXES, case_and_slice, image_to_mask_name
from utils.paths import natural_key, read_path_list, resolve_path


class SlicePair(NamedTuple):
    """An image file and the mask file that belongs to it, None where masks are not given."""

    image: Path
    mask: Path | None


def list_split(cfg: DictConfig, split: str) -> list[SlicePair]:
    """The pairs of a split, as `list_slice_pairs` finds them.

    TRAIN is what to train on, HELD_OUT the cases of `DATASET.TRAIN` that `DATASET.SPLIT` keeps from
    it (none unless it is set), and VAL is `DATASET.VAL`.

    Raises:
        UserError: see `list_slice_pairs` and `held_out_cases`.
    """
    source = source_section(split)
    paths = cfg.DATASET[source]
    pairs = list_slice_pairs(
        paths.IMAGES_PATH, paths.MASK_PATH, Path(cfg.WORK_DIR), f"DATASET.{source}"
    )
    if split == VAL:
        return pairs
    if not is_carved(cfg):
        return pairs if split == TRAIN else []
    cases = [case_and_slice(pair.image)[0] for pair in pairs]
    held_out = held_out_cases(Counter(cases), cfg.DATASET.SPLIT)
    return [
        pair
        for pair, case in zip(pairs, cases, strict=True)
        if (case in held_out) == (split == HELD_OUT)
    ]


def cases_of(pairs: Sequence[SlicePair]) -> list[str]:
    """The ids of the cases that the pairs belong to, in natural order."""
    return sorted({case_and_slice(pair.image)[0] for pair in pairs}, key=natural_key)


def source_section(split: str) -> str:
    """The section of `DATASET` that names the files of a split."""
    return TRAIN if split == HELD_OUT else split


def list_slice_pairs(
    images: str | Sequence[str], masks: str | Sequence[str] | None, work_dir: Path, key: str
) -> list[SlicePair]:
    """Pairs in natural order of the image names (slice 9 before 10), or in a list's own order.

    A list may be a text file of paths, see `read_path_list`. Two lists are paired by position.
    Otherwise the mask's name follows from the image's (`image_to_mask_name`); its ending may
    differ.

    Raises:
        UserError: nothing found, an image without mask, a mask without image, unequal lists.
    """
    images = read_path_list(images, work_dir, f"{key}.IMAGES_PATH")
    image_files = _files(images, work_dir, f"{key}.IMAGES_PATH")
    if masks is None:
        return [SlicePair(image, None) for image in image_files]
    masks = read_path_list(masks, work_dir, f"{key}.MASK_PATH")
    mask_files = _files(masks, work_dir, f"{key}.MASK_PATH")
    if not isinstance(images, str) and not isinstance(masks, str):
        if len(image_files) != len(mask_files):
            raise UserError(
                f"{key}: found {len(image_files)} images and {len(mask_files)} masks; two lists "
                "are paired by position and must be equally long"
            )
        return [SlicePair(*pair) for pair in zip(image_files, mask_files, strict=True)]
    return _pair_by_name(image_files, mask_files, key, is_folder=isinstance(images, str))


def _pair_by_name(
    images: list[Path], masks: list[Path], key: str, is_folder: bool
) -> list[SlicePair]:
    mask_by_stem = {mask.stem: mask for mask in masks}
    problems = _twins(images) + _twins(masks)
    wanted = {image_to_mask_name(image.name).rsplit(".", 1)[0]: image for image in images}
    problems += [
        f"{image}: no mask named {stem}.*"
        for stem, image in wanted.items()
        if stem not in mask_by_stem
    ]
    if is_folder:
        problems += [
            f"{mask}: no image belongs to this mask"
            for stem, mask in mask_by_stem.items()
            if stem not in wanted
        ]
    if problems:
        raise UserError.listing(f"{key}: images and masks do not pair up", problems)
    return [SlicePair(image, mask_by_stem[stem]) for stem, image in wanted.items()]


def _twins(files: list[Path]) -> list[str]:
    first: dict[str, Path] = {}
    return [
        f"{file}: has the same name as {first[file.stem]}"
        for file in files
        if first.setdefault(file.stem, file) is not file
    ]


def _files(source: str | Sequence[str], work_dir: Path, key: str) -> list[Path]:
    if not isinstance(source, str):
        files = [resolve_path(name, work_dir) for name in source]
        if not files:
            raise UserError(f"{key}: found an empty list; expected one path or more")
        if missing := [str(file) for file in files if not file.is_file()]:
            raise UserError.listing(f"{key}: files not found", missing)
        return files
    folder = resolve_path(source, work_dir)
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise UserError(
            f"{key}: folder not found: {folder}. Prepare the scans with "
            f"'python data_preparation/preprocess_data.py', or set {key} to a folder or list"
        )
    files = [
        file
        for file in folder.iterdir()
        if file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith(".")
    ]
    if not files:
        raise UserError(f"{key}: no image files ({', '.join(IMAGE_SUFFIXES)}) in {folder}")
    return sorted(files, key=lambda file: natural_key(file.name))

"""Phantom scans, named and laid out as LiTS: NIfTI pairs for the demo and the tests.

Usage, from the project's folder:
    python data_preparation/synthetic.py [PHANTOM.TRAIN_CASES=8 ...]
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
from nibabel.orientations import axcodes2ornt, ornt_transform
from omegaconf import DictConfig

if not __package__:  # run by path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data_preparation.phantom import draw_phantom
from utils.cli import run_command
from utils.errors import UserError
from utils.log import logger, progress
from utils.paths import atomic_path, natural_key, resolve_path

PHANTOM_MARK = b"UNet 3+ phantom"  # in the NIfTI header's `descrip` field
DRAWN_AXES = "LPS"
# How cases are stored, in turn: as scanners do, as NIfTI does, mirrored, and as sagittal slices
STORED_AXES = ("LPS", "RAS", "LAS", "PSR")


class PhantomFolder(NamedTuple):
    """A scan folder, the configuration key that names it and the cases to be drawn there."""

    key: str
    path: Path
    cases: range


def write_phantoms(cfg: DictConfig) -> None:
    """Draw PHANTOM.VAL_CASES and PHANTOM.TRAIN_CASES scans into the two scan folders.

    Cases are numbered as in LiTS: validation (Batch 1) from 0, training (Batch 2) after it. A
    split whose folder is null is skipped. Phantoms of an earlier run are replaced, and removed
    where this run has none of their number, so that no case is ever in both folders.

    Raises:
        UserError: a folder holds scans that are not phantoms, or the splits have no folder or
            the same one; nothing has been written.
    """
    folders = _phantom_folders(cfg)
    earlier = [path for folder in folders for path in _phantoms_in(folder)]
    jobs = [(folder.path, case) for folder in folders for case in folder.cases]
    wanted = {path for target, case in jobs for path in _scan_files(target, case)}
    for path in set(earlier) - wanted:
        path.unlink()
    for target, case in progress(jobs, "Phantom scans", len(jobs), "scan", cfg.VERBOSE):
        _write_phantom(target, case, cfg)
    for folder in folders:
        logger.info("%d phantom scans in %s", len(folder.cases), folder.path)


def phantom_images(
    seed: int, case: int, size: int, slices: int
) -> tuple[nib.Nifti1Image, nib.Nifti1Image]:
    """Volume and segmentation of a phantom in the case's own stored orientation.

    Both have the same affine, which places them in the scanner's mm; see
    `data_preparation.phantom.draw_phantom` for the arguments and the voxels.
    """
    hu, labels, spacing = draw_phantom(seed, case, size, slices)
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1])  # LPS in NIfTI's RAS world
    affine[:3, 3] = -affine[:3, :3] @ (np.array(hu.shape) - 1) / 2  # the middle is the origin
    codes = STORED_AXES[case % len(STORED_AXES)]
    transform = ornt_transform(axcodes2ornt(DRAWN_AXES), axcodes2ornt(codes))
    return _nifti(hu, affine, transform), _nifti(labels, affine, transform)


def _nifti(voxels: np.ndarray, affine: np.ndarray, transform: np.ndarray) -> nib.Nifti1Image:
    image = nib.Nifti1Image(voxels, affine).as_reoriented(transform)
    for set_form in (image.set_sform, image.set_qform):
        set_form(image.affine, code="scanner")
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = PHANTOM_MARK
    return image


def _write_phantom(folder: Path, case: int, cfg: DictConfig) -> None:
    images = phantom_images(cfg.SEED, case, cfg.PHANTOM.SIZE, cfg.PHANTOM.SLICES)
    for path, image in zip(_scan_files(folder, case), images, strict=True):
        with atomic_path(path) as temporary:
            nib.save(image, temporary)


def _scan_files(folder: Path, case: int) -> tuple[Path, Path]:
    return folder / f"volume-{case}.nii", folder / f"segmentation-{case}.nii"


def _phantom_folders(cfg: DictConfig) -> list[PhantomFolder]:
    paths, phantom = cfg.DATA_PREPARATION, cfg.PHANTOM
    cases = {
        "SCANS_VAL_DATA_PATH": range(phantom.VAL_CASES),
        "SCANS_TRAIN_DATA_PATH": range(phantom.VAL_CASES, phantom.VAL_CASES + phantom.TRAIN_CASES),
    }
    folders = [
        PhantomFolder(f"DATA_PREPARATION.{key}", resolve_path(paths[key], cfg.WORK_DIR), numbers)
        for key, numbers in cases.items()
        if paths[key] is not None
    ]
    if len({folder.path.resolve() for folder in folders}) < max(len(folders), 1):
        found = " and ".join(f"{key}={paths[key]}" for key in cases)
        raise UserError(
            f"DATA_PREPARATION: found {found}; phantom scans need a different folder for each "
            "split, null for a split to be skipped"
        )
    return folders


def _phantoms_in(folder: PhantomFolder) -> Iterator[Path]:
    """The scans in a folder.

    Raises:
        UserError: the folder holds a scan that is not a phantom.
    """
    found = [path for ending in ("*.nii", "*.nii.gz") for path in folder.path.glob(ending)]
    for path in sorted(found, key=lambda path: natural_key(path.name)):
        if path.name.startswith("."):
            continue  # a temporary file of an interrupted run
        if not _is_phantom(path):
            raise UserError(
                f"{folder.key}: {folder.path} holds scans that are not phantoms, such as "
                f"{path.name}, and is left untouched; set {folder.key} to another folder"
            )
        yield path


def _is_phantom(path: Path) -> bool:
    try:
        return nib.load(path).header["descrip"].item() == PHANTOM_MARK
    except (OSError, EOFError, ValueError, nib.filebasedimages.ImageFileError):
        return False


if __name__ == "__main__":
    run_command(write_phantoms)

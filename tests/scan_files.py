"""Tiny scans on disk, and configurations that prepare them."""

from itertools import permutations, product
from pathlib import Path
from unittest import mock

import nibabel as nib
import numpy as np
from nibabel.orientations import axcodes2ornt, ornt_transform
from omegaconf import DictConfig, OmegaConf

from data_preparation import preprocess_data
from utils.case_records import read_cases
from utils.config import validate_config

ALL_AXIS_CODES = [
    "".join(codes) for axes in permutations(("LR", "AP", "IS")) for codes in product(*axes)
]
SPACING = (0.7, 0.8, 5.0)  # mm along left-right, front-back, up-down


def patient(slices: int = 3, rows: int = 6, columns: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """HU (int16) and labels (uint8) as `view[slice, row, column]`, with no symmetry at all."""
    rng = np.random.default_rng(7)
    hu = rng.integers(-1000, 1000, (slices, rows, columns)).astype(np.int16)
    labels = rng.integers(0, 3, hu.shape).astype(np.uint8)
    return hu, labels


def write_scan(path: Path, view: np.ndarray, axis_codes: str = "RAS", store_as=None) -> Path:
    """Write `view[slice, row, column]` (inferior, anterior, right first) stored as `axis_codes`."""
    ras = view[:, ::-1, ::-1].transpose(2, 1, 0)
    affine = np.diag([*SPACING, 1.0])
    affine[:3, 3] = (-90.0, 20.0, 300.0)
    header = nib.Nifti1Header()
    header.set_data_dtype(store_as or view.dtype)
    image = nib.Nifti1Image(np.ascontiguousarray(ras), affine, header)
    turned = ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(axis_codes))
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(image.as_reoriented(turned), path)
    return path


def write_case(folder: Path, case: str = "0", axis_codes: str = "RAS", ending: str = "nii") -> None:
    """Write `patient()` as a volume and its segmentation."""
    hu, labels = patient()
    write_scan(folder / f"volume-{case}.{ending}", hu, axis_codes)
    write_scan(folder / f"segmentation-{case}.{ending}", labels, axis_codes)


def truncate(path: Path) -> None:
    """Cut off the second half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scan_arguments(work_dir: Path, *overrides: str) -> list[str]:
    """Command line arguments that prepare `work_dir`/scans as TRAIN, 6x8 px unless overridden."""
    return [
        f"WORK_DIR={work_dir}",
        "DATA_PREPARATION.SCANS_TRAIN_DATA_PATH=scans",
        "DATA_PREPARATION.SCANS_VAL_DATA_PATH=null",
        "DATA_PREPARATION.RESIZED_HEIGHT=6",
        "DATA_PREPARATION.RESIZED_WIDTH=8",
        "DATA_PREPARATION.WORKERS=2",
        *overrides,
    ]


def scan_config(work_dir: Path, *overrides: str) -> DictConfig:
    """The configuration of `scan_arguments`, quiet."""
    arguments = [*scan_arguments(work_dir), "VERBOSE=0", *overrides]
    return validate_config(OmegaConf.from_dotlist(arguments))


def prepare(work_dir: Path, *overrides: str) -> None:
    """Prepare the scans of `scan_config` here, sparing the start of worker processes."""

    def run(function, jobs, workers):
        return ((job, function(job)) for job in jobs)

    with mock.patch.object(preprocess_data, "run_in_processes", run):
        preprocess_data.preprocess_data(scan_config(work_dir, *overrides))


def pictures(work_dir: Path) -> dict[str, int]:
    """Name and time of writing of every file in the two output folders."""
    folders = work_dir / "data/train/images", work_dir / "data/train/mask"
    return {p.name: p.stat().st_mtime_ns for f in folders if f.exists() for p in f.iterdir()}


def finished(work_dir: Path) -> list[str]:
    """The cases that cases.json calls finished."""
    return list(read_cases(work_dir / "data/train/cases.json"))

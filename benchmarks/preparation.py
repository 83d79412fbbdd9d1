"""Slices per second of the preparation, against a plain loop over whole scans; peak memory.

`python -m benchmarks.preparation`; `python -m benchmarks.preparation FOLDER` prints the peak
memory, MB, of a process that prepares the scan in FOLDER.
"""

import resource
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import nibabel as nib
import numpy as np
from omegaconf import DictConfig

from benchmarks.measure import printed_number, report
from data_preparation.phantom import draw_phantom
from data_preparation.preprocess_data import preprocess_data
from utils.config import validate_config

SIZE, SCANS, SLICES, TURNS = 512, 8, 120, 3
LONG_SCAN, MEMORY_TARGET = 1000, "< 400"  # slices, MB
SPEED_TARGET = ">= 4"
WINDOW = (-200, 250)  # HU


def write_scans(folder: Path, count: int, slices: int, ending: str = "nii") -> None:
    """The same phantom `count` times, drawn small, enlarged, with noise in every voxel; as LAS."""
    hu, labels, _ = draw_phantom(seed=0, case=0, size=SIZE // 4, slices=30)
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 12, (SIZE, SIZE)).round().astype(np.int16)
    shape = (SIZE, SIZE, slices)
    volume, mask = np.empty(shape, np.int16, order="F"), np.empty(shape, np.uint8, order="F")
    for index in range(slices):
        drawn = index * hu.shape[2] // slices
        mask[..., index] = np.minimum(labels[..., drawn], 1).repeat(4, axis=0).repeat(4, axis=1)
        enlarged = cv2.resize(hu[..., drawn], (SIZE, SIZE), interpolation=cv2.INTER_LINEAR)
        volume[..., index] = enlarged + np.roll(noise, 7 * index)
    folder.mkdir(parents=True)
    for case in range(count):
        for kind, voxels in (("volume", volume), ("segmentation", mask)):
            image = nib.Nifti1Image(voxels, np.diag([-0.7, 0.7, 1.0, 1.0]))
            nib.save(image, folder / f"{kind}-{case}.{ending}")


def configuration(scans: Path, work_dir: Path, workers: int = 1) -> DictConfig:
    """Scans of a folder to slices of 320 x 320 px under `work_dir`."""
    return validate_config(
        {
            "WORK_DIR": str(work_dir),
            "DATA_PREPARATION": {
                "SCANS_TRAIN_DATA_PATH": str(scans),
                "SCANS_VAL_DATA_PATH": None,
                "WORKERS": workers,
            },
            "VERBOSE": 0,
        }
    )


def straight_preparation(scans: Path, folder: Path, size: int = 320) -> int:
    """What the predecessor does: a whole scan as floats, then slice after slice; returns slices."""
    folder.mkdir(parents=True)
    low, high = WINDOW
    volume = nib.load(scans / "volume-0.nii").get_fdata()
    mask = nib.load(scans / "segmentation-0.nii").get_fdata()
    grey = (np.clip(volume, low, high) - low) / (high - low) * 255
    count = volume.shape[2]
    for index in range(count):
        around = np.clip([index - 1, index, index + 1], 0, count - 1)
        image = cv2.resize(np.rot90(grey[..., around]), (size, size))
        cv2.imwrite(str(folder / f"image_0_{index}.png"), image.astype(np.uint8))
        plane = cv2.resize(
            np.rot90(mask[..., index]), (size, size), interpolation=cv2.INTER_NEAREST
        )
        cv2.imwrite(str(folder / f"mask_0_{index}.png"), np.minimum(plane, 1).astype(np.uint8))
    return count


def prepared(scans: Path, folder: Path, workers: int) -> int:
    """Prepare all scans anew; returns how many slices there are."""
    preprocess_data(configuration(scans, folder, workers))
    return SCANS * SLICES


def speed_rows(folder: Path) -> list[dict]:
    """Slices per second; the ways take turns, each writing into a folder of its own."""
    scans = folder / "scans"
    write_scans(scans, SCANS, SLICES)
    ways = {"plain loop, one process": lambda out: straight_preparation(scans, out)} | {
        f"preprocess_data, {workers} process{'es' * (workers > 1)}": lambda out, workers=workers: (
            prepared(scans, out, workers)
        )
        for workers in (1, 2)
    }
    speeds = {name: [] for name in ways}
    for turn in range(TURNS):
        for name, way in ways.items():
            start = time.perf_counter()
            slices = way(folder / f"{name} {turn}")
            speeds[name].append(slices / (time.perf_counter() - start))
    median = {name: statistics.median(values) for name, values in speeds.items()}
    plain, *_, fastest = median
    return [
        _row(
            f"slices/s, {name}",
            round(speed),
            round(speed / median[plain], 2),
            SPEED_TARGET if name == fastest else "",
        )
        for name, speed in median.items()
    ]


def memory_row(folder: Path, ending: str) -> dict:
    """Peak memory of a process that prepares a scan of 1000 slices."""
    write_scans(folder / ending, 1, LONG_SCAN, ending)
    peak = printed_number("benchmarks.preparation", folder / ending)
    return _row(f"peak memory of a process, MB, .{ending}", round(peak), "", MEMORY_TARGET)


def peak_memory(scans: Path) -> float:
    """Peak memory, MB, of the worker process that prepares the scan in a folder."""
    with TemporaryDirectory() as work_dir:
        preprocess_data(configuration(scans, Path(work_dir)))
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _row(quantity: str, value: int, ratio: float | str, target: str) -> dict:
    return {"quantity": quantity, "value": value, "ratio": ratio, "target": target}


def main() -> None:
    """Measure, print, write."""
    with TemporaryDirectory() as folder:
        rows = speed_rows(Path(folder))
        rows += [memory_row(Path(folder), ending) for ending in ("nii", "nii.gz")]
    title = f"Preparation of {SIZE} x {SIZE} x {SLICES} voxels (speed) and {LONG_SCAN} slices"
    report("preparation", title, rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(peak_memory(Path(sys.argv[1])))
    else:
        main()

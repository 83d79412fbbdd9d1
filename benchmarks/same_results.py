"""Whether the files that two runs have left are whole, and the same but for times."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import h5py
import nibabel as nib
import numpy as np
from PIL import Image

# What may differ between two runs
TIMES = {"seconds", "timing", "command", "resumed_after_epoch"}
NUMBER = r"-?\d+(\.\d+)?(e[+-]?\d+)?"
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}  # of sums whose order the threads decide


def half_written(folder: Path) -> list[str]:
    """The files that cannot be read, logs that grow line by line apart."""
    problems = []
    for name, path in _files(folder).items():
        if not path.name.startswith("training_logs"):
            try:
                _content(path)
            except Exception as error:  # whatever it is, the file is not whole
                problems.append(f"{name} is half written ({error})")
    return problems


def differences(expected: Path, found: Path) -> list[str]:
    """Files that only one folder has, and those of other content."""
    ours, theirs = _files(found), _files(expected)
    problems = [f"{name} is there in one run only" for name in ours.keys() ^ theirs.keys()]
    for name in ours.keys() & theirs.keys():
        if not _same(_content(ours[name]), _content(theirs[name])):
            problems.append(f"{name} differs")
    return problems


def _files(folder: Path) -> dict[str, Path]:
    """Results by their place in `folder`: no hidden files, no TensorBoard logs, no web pages."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path
        for name, path in files.items()
        if not path.name.startswith((".", "events.")) and path.suffix != ".html"
    }


def _content(path: Path) -> Any:
    return READERS.get(path.suffix, Path.read_bytes)(path)


def _json(path: Path) -> Any:
    def without_times(value: dict) -> dict:
        return {key: item for key, item in value.items() if key not in TIMES}

    return json.loads(path.read_text(encoding="utf-8"), object_hook=without_times)


def _csv(path: Path) -> list:
    rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    return [[float(cell) if re.fullmatch(NUMBER, cell) else cell for cell in row] for row in rows]


def _png(path: Path) -> list:
    return [path.read_bytes(), np.array(Image.open(path))]


def _nifti(path: Path) -> list:
    image = nib.load(path)
    return [bytes(image.header.binaryblock), np.asarray(image.dataobj)]


def _hdf5(path: Path) -> dict[str, np.ndarray]:
    arrays = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[()]} if hasattr(item, "shape") else {})
        )
    return arrays


READERS = {
    ".json": _json,
    ".csv": _csv,
    ".png": _png,
    ".nii": _nifti,
    ".gz": _nifti,
    ".h5": _hdf5,
}


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(_same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    if isinstance(ours, float | np.ndarray):
        return np.shape(ours) == np.shape(theirs) and np.allclose(ours, theirs, **TOLERANCE)
    return ours == theirs

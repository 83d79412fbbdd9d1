"""Voxels that stay in a file and come into memory only where they are read."""

import shutil
from mmap import MADV_DONTNEED, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from nibabel.arrayproxy import ArrayProxy
from nibabel.openers import ImageOpener


def map_voxels(path: Path, proxy: ArrayProxy) -> np.ndarray:
    """The unscaled voxels of a NIfTI file, without an axis reordered; read only.

    A compressed file is first written out into a file without a name in the system's folder for
    temporary files, which is gone as soon as nobody uses the voxels.

    Args:
        path: the file, .nii or .nii.gz.
        proxy: nibabel's description of its voxels.

    Raises:
        OSError, EOFError, ValueError, zlib.error: the file is damaged or shorter than it says, or
            the temporary file does not find room.
    """
    layout = {"dtype": proxy.dtype, "shape": proxy.shape, "mode": "r", "order": "F"}
    if not path.name.lower().endswith(".gz"):
        return np.memmap(path, offset=proxy.offset, **layout)
    with ImageOpener(path) as source, TemporaryFile() as copy:
        source.seek(proxy.offset)
        shutil.copyfileobj(source, copy, 1 << 20)
        copy.flush()
        return np.memmap(copy, **layout)


def release_memory(voxels: np.ndarray) -> None:
    """Give back the memory of what has been read from `voxels`, a view of `map_voxels`."""
    owner: Any = voxels
    while not isinstance(owner, mmap):
        owner = owner.base
    owner.madvise(MADV_DONTNEED)

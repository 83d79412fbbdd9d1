"""Finding NIfTI scans and reading them, whatever order their axes are stored in.

Every scan is seen as `view[slice, row, column]`: slices from inferior to superior, row 0 anterior,
column 0 the patient's right (the radiological picture of a patient who lies on the back). In
nibabel's axis codes, which name the end an axis points to, that is S, P, L.
"""

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.orientations import apply_orientation, axcodes2ornt, ornt_transform
from nibabel.spatialimages import HeaderDataError

from data_preparation.mapped_voxels import map_voxels, release_memory
from utils.errors import UserError
from utils.paths import natural_key

VIEW_AXIS_CODES = "SPL"
LABEL_NAMES = ("background", "liver", "tumour")

_SCAN_NAME = re.compile(r"(?P<kind>volume|segmentation)-(?P<case>.+?)\.nii(\.gz)?")
_UNREADABLE = (OSError, EOFError, ValueError, zlib.error, ImageFileError, HeaderDataError)
_ROUNDING = 1e-3  # how far a label may lie from an integer
_LARGEST_HALF_STEP = 1e-2  # more, where a scale factor has quantised it
_AFFINE_TOLERANCE_MM = 1e-3


class ScanFiles(NamedTuple):
    """The files of one case; `segmentation` is None where there is no mask."""

    case: str
    volume: Path
    segmentation: Path | None


class ScanFolder(NamedTuple):
    """What a folder holds: usable cases, reasons against others, masks without a volume."""

    scans: list[ScanFiles]
    failures: dict[str, str]
    orphans: list[Path]


def find_scans(folder: Path) -> ScanFolder:
    """The `volume-<case>.nii[.gz]` of `folder`, in natural order, with their `segmentation-…`.

    A case that has one of its files both as .nii and as .nii.gz is a failure.

    Raises:
        UserError: the folder is missing or has no volumes.
    """
    if not folder.is_dir():
        raise UserError(f"folder not found: {folder}")
    found: dict[str, dict[str, list[Path]]] = {"volume": {}, "segmentation": {}}
    for path in sorted(folder.iterdir(), key=lambda path: natural_key(path.name)):
        if match := _SCAN_NAME.fullmatch(path.name):
            found[match["kind"]].setdefault(match["case"], []).append(path)
    volumes, segmentations = found["volume"], found["segmentation"]

    scans, failures = [], {}
    for case, paths in volumes.items():
        masks = segmentations.get(case, [])
        if twins := [twin for twin in (paths, masks) if len(twin) > 1]:
            names = " and ".join(path.name for path in twins[0])
            failures[case] = f"found {names} in {folder}; keep one of the two"
        else:
            scans.append(ScanFiles(case, paths[0], masks[0] if masks else None))
    if not volumes:
        raise UserError(f"no volume-<case>.nii or .nii.gz in {folder}")
    orphans = [
        mask for case, masks in segmentations.items() if case not in volumes for mask in masks
    ]
    return ScanFolder(scans, failures, orphans)


@dataclass(frozen=True)
class Scan:
    """A volume or a segmentation, its voxels still as the file stores them.

    Attributes:
        stored: unscaled voxels in the order of the view (slice, row, column), mapped from the file,
            or from an uncompressed copy in the system's folder for temporary files, so that memory
            need not hold the scan.
        slope: factor from stored voxels to HU or labels.
        intercept: summand, added after the factor.
        shape: the grid of the file (three axes, as stored).
        axis_codes: where the file's axes point to, such as "RAS".
        affine: (4, 4) from the file's voxel indices to mm.
        spacing: distance of voxels along the file's axes, mm.
        description: the header's own text, usually of the program that wrote the file.
        doubt: why the header's orientation may be wrong; None where nothing speaks against it.
    """

    path: Path
    stored: np.ndarray
    slope: float
    intercept: float
    shape: tuple[int, int, int]
    axis_codes: str
    affine: np.ndarray
    spacing: tuple[float, float, float]
    description: str
    doubt: str | None

    def __len__(self) -> int:
        """Number of slices."""
        return len(self.stored)

    def values(self, index: int) -> np.ndarray:
        """Slice `index` in HU (or as labels), float32 of shape (rows, columns).

        Raises:
            UserError: the slice has voxels that are NaN or infinite.
        """
        with np.errstate(over="ignore"):  # becomes infinite, which is refused
            stored = self.stored[index].astype(np.float32, order="C")
            values = stored * np.float32(self.slope) + np.float32(self.intercept)
        release_memory(self.stored)
        if not np.isfinite(values).all():
            raise UserError(f"{self.path}: found NaN or infinite voxels in slice {index}")
        return values

    def labels(self, index: int) -> np.ndarray:
        """Slice `index` of a segmentation, uint8 of shape (rows, columns), values 0, 1 and 2.

        Labels that a scale factor has moved off the integers are rounded back.

        Raises:
            UserError: a voxel is no label.
        """
        values = self.values(index)
        labels = np.rint(values)
        is_wrong = np.abs(values - labels) > self._label_tolerance()
        is_wrong |= (labels < 0) | (labels >= len(LABEL_NAMES))
        if is_wrong.any():
            expected = ", ".join(f"{label} ({name})" for label, name in enumerate(LABEL_NAMES))
            raise UserError(
                f"{self.path}: found label {values[is_wrong][0]:g} in slice {index}; "
                f"expected {expected}"
            )
        return labels.astype(np.uint8)

    def value_range(self) -> tuple[float, float]:
        """Least and greatest value of the scan, HU."""
        ends = []
        for stored in self.stored:
            ends += [float(stored.min()), float(stored.max())]
            release_memory(self.stored)
        low, high = sorted(end * self.slope + self.intercept for end in (min(ends), max(ends)))
        return low, high

    def _label_tolerance(self) -> float:
        """Integers stored with a scale factor are off by up to half a step of it."""
        if not np.issubdtype(self.stored.dtype, np.integer):
            return _ROUNDING
        return _ROUNDING + min(abs(self.slope) / 2, _LARGEST_HALF_STEP)


def read_scan(path: Path, axis_codes: str | None = None) -> Scan:
    """Open a NIfTI file in the documented view.

    Args:
        path: a .nii or .nii.gz file of three axes (further axes of length 1 are dropped).
        axis_codes: where the stored axes really point to, if the header is not to be trusted.

    Raises:
        UserError: damaged, truncated or not a NIfTI volume of numbers, or without an orientation.
    """
    with _naming_failures(path):
        image = nib.load(path)
    if not isinstance(image, nib.Nifti1Image):
        raise UserError(f"{path}: found a {type(image).__name__}; expected a NIfTI volume")
    if (stored_type := image.get_data_dtype()).kind not in "iuf":
        raise UserError(f"{path}: found voxels of type {stored_type}; expected real numbers")
    shape = image.shape[:3]
    if len(shape) != 3 or 0 in shape or any(length != 1 for length in image.shape[3:]):
        raise UserError(f"{path}: found shape {image.shape}; expected three axes")
    with _naming_failures(path):
        voxels = map_voxels(path, image.dataobj).reshape(shape, order="F")

    codes = axis_codes or _axis_codes_of(image.affine, path)
    return Scan(
        path=path,
        stored=apply_orientation(voxels, view_transform(codes)),
        slope=float(image.dataobj.slope),
        intercept=float(image.dataobj.inter),
        shape=shape,
        axis_codes=codes,
        affine=image.affine,
        spacing=tuple(float(size) for size in image.header.get_zooms()[:3]),
        description=bytes(image.header["descrip"]).rstrip(b"\0").decode("latin-1"),
        doubt=None if axis_codes else _orientation_doubt(image),
    )


def read_segmentation(path: Path, volume: Scan) -> Scan:
    """Open the mask of `volume`, turned as the volume is: its own affine does not count.

    Raises:
        UserError: as `read_scan`, or the grid is not the volume's.
    """
    segmentation = read_scan(path, volume.axis_codes)
    if segmentation.shape != volume.shape:
        raise UserError(
            f"{path}: found shape {segmentation.shape}; {volume.path.name} has {volume.shape}"
        )
    return segmentation


def header_doubts(volume: Scan, segmentation: Scan | None = None) -> list[str]:
    """What makes the orientation of a scan doubtful, a sentence each; usually nothing."""
    doubts = []
    if volume.doubt:
        doubts.append(
            f"{volume.path}: {volume.doubt}; taken as {volume.axis_codes}. Look at its slices, and "
            "set DATA_PREPARATION.AXIS_CODES for this case if they are turned"
        )
    if segmentation is not None and not np.allclose(
        volume.affine, segmentation.affine, rtol=1e-5, atol=_AFFINE_TOLERANCE_MM
    ):
        doubts.append(
            f"{segmentation.path}: its affine is not that of {volume.path.name}, whose affine is "
            "used for both"
        )
    return doubts


def view_transform(axis_codes: str) -> np.ndarray:
    """nibabel's orientation array, (3, 2), from axes stored as `axis_codes` to the view."""
    return ornt_transform(axcodes2ornt(axis_codes), axcodes2ornt(VIEW_AXIS_CODES))


def restore_orientation(view: np.ndarray, axis_codes: str) -> np.ndarray:
    """`view` (slice, row, column) with its axes as a file of `axis_codes` stores them.

    The inverse of what `read_scan` does, for masks that go back to a scan's native grid.
    """
    back = ornt_transform(axcodes2ornt(VIEW_AXIS_CODES), axcodes2ornt(axis_codes))
    return apply_orientation(view, back)


def _orientation_doubt(image: nib.Nifti1Image) -> str | None:
    if not (image.header["qform_code"] or image.header["sform_code"]):
        return "the header sets neither qform nor sform"
    if np.array_equal(image.affine, np.eye(4)):
        return "the affine is the identity"
    return None


@contextmanager
def _naming_failures(path: Path) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: damaged, or not a NIfTI file ({reason})") from None


def _axis_codes_of(affine: np.ndarray, path: Path) -> str:
    try:
        codes = nib.aff2axcodes(affine)
    except np.linalg.LinAlgError:
        codes = (None,)
    if None in codes:
        raise UserError(
            f"{path}: its affine gives no orientation; set the axis codes of this case in "
            "DATA_PREPARATION.AXIS_CODES, such as RAS"
        )
    return "".join(codes)

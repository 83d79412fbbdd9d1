"""What a NIfTI header says of a scan's axes, and whether that can be believed."""

from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.affines import voxel_sizes

from utils.errors import UserError


def axis_codes_of(affine: np.ndarray, path: Path) -> str:
    """Where the axes of a file point to, such as "RAS".

    Raises:
        UserError: `affine` does not say.
    """
    codes = _codes_or_none(affine)
    if codes is None:
        raise UserError(
            f"{path}: its affine gives no orientation; set the axis codes of this case in "
            "DATA_PREPARATION.AXIS_CODES, such as RAS"
        )
    return "".join(codes)


def orientation_doubt(image: nib.Nifti1Image) -> str | None:
    """Why a header may be wrong about the orientation; None where nothing speaks against it."""
    if not (image.header["qform_code"] or image.header["sform_code"]):
        return "the header sets neither qform nor sform"
    if np.array_equal(image.affine, np.eye(4)):
        return "the affine is the identity"
    codes = _codes_or_none(image.affine)
    if codes is None:
        return "the affine gives no orientation"
    if image.header["qform_code"] and _codes_or_none(_qform(image)) != codes:
        return "the header's qform and sform point to different sides"
    return None


def voxel_spacing(
    image: nib.Nifti1Image, path: Path, is_affine_trusted: bool
) -> tuple[float, float, float]:
    """Size of the voxels, mm: of the affine, or of the header's pixdim where that is in doubt.

    Raises:
        UserError: they are not positive numbers.
    """
    sizes = voxel_sizes(image.affine) if is_affine_trusted else image.header.get_zooms()[:3]
    if not (np.isfinite(sizes).all() and np.all(np.array(sizes) > 0)):
        raise UserError(f"{path}: its header gives no size of the voxels (found {sizes} mm)")
    x, y, z = (float(size) for size in sizes)
    return x, y, z


def _qform(image: nib.Nifti1Image) -> np.ndarray:
    try:
        return image.get_qform()
    except ValueError:  # not a rotation
        return np.full((4, 4), np.nan)


def _codes_or_none(affine: np.ndarray) -> tuple[str, ...] | None:
    try:
        codes = nib.aff2axcodes(affine)
    except np.linalg.LinAlgError:
        return None
    return None if None in codes else codes

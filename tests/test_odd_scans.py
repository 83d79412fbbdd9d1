"""NIfTI files that are legal but unusual, and damage that must not pass for data."""

import gzip
import struct
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from data_preparation.scan_inputs import find_scan_inputs, find_scans, mask_name
from data_preparation.scans import header_doubts, read_scan
from data_preparation.slices import SliceSettings, grey_slices
from tests.scan_files import patient, write_scan
from utils.errors import UserError

HU, LABELS = patient()
# Positions of header fields in a NIfTI-1 file
DIM, DATATYPE, PIXDIM, VOX_OFFSET, SLOPE, INTERCEPT = 42, 70, 80, 108, 112, 116
FORM_CODES, SFORM, MAGIC = 252, 280, 344  # the quaternion follows the codes


def values(path: Path, **options) -> np.ndarray:
    scan = read_scan(path, **options)
    return np.stack([scan.values(index) for index in range(len(scan))])


def patched(path: Path, offset: int, layout: str, *numbers) -> Path:
    content = bytearray(write_scan(path, HU).read_bytes())
    struct.pack_into(layout, content, offset, *numbers)
    path.write_bytes(bytes(content))
    return path


@pytest.mark.parametrize("slope", [0.0, np.nan, np.inf])
def test_a_slope_that_is_no_factor_counts_as_none(tmp_path, slope):
    path = patched(tmp_path / "a.nii", SLOPE, "<f", slope)
    np.testing.assert_array_equal(values(path), HU)


def test_a_negative_slope_is_a_factor(tmp_path):
    path = patched(tmp_path / "a.nii", SLOPE, "<ff", -1.0, 3.0)
    np.testing.assert_array_equal(values(path), 3 - HU)


@pytest.mark.parametrize("size", [0.0, -0.7, np.nan, 99.0])
def test_the_affine_gives_the_spacing_where_pixdim_is_wrong(tmp_path, size):
    scan = read_scan(patched(tmp_path / "a.nii", PIXDIM, "<f", size))
    assert scan.spacing == pytest.approx((0.7, 0.8, 5.0))
    assert header_doubts(scan) == []


def test_pixdim_gives_the_spacing_where_the_affine_is_in_doubt(tmp_path):
    path = tmp_path / "a.nii"
    image = nib.Nifti1Image(HU, np.eye(4))
    image.header["pixdim"][1:4] = 0.7, 0.8, 5.0
    nib.save(image, path)
    scan = read_scan(path)
    assert scan.spacing == pytest.approx((0.7, 0.8, 5.0))
    assert "the affine is the identity" in header_doubts(scan)[0]


def test_an_affine_without_orientation_leaves_pixdim(tmp_path):
    path = patched(tmp_path / "a.nii", SFORM, "<f", np.nan)
    with pytest.raises(UserError, match="a.nii: its affine gives no orientation; set"):
        read_scan(path)
    assert read_scan(path, "RAS").spacing == pytest.approx((0.7, 0.8, 5.0))
    content = bytearray(path.read_bytes())
    struct.pack_into("<f", content, PIXDIM, np.nan)
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match="a.nii: its header gives no size of the voxels"):
        read_scan(path, "RAS")


@pytest.mark.parametrize("quaternion", [(0.0, 0.0, 1.0), (5.0, 5.0, 5.0)])
def test_qform_and_sform_that_disagree_are_doubtful(tmp_path, quaternion):
    scan = read_scan(patched(tmp_path / "a.nii", FORM_CODES, "<hhfff", 1, 2, *quaternion))
    assert "qform and sform point to different sides; taken as RAS" in header_doubts(scan)[0]


@pytest.mark.parametrize("degrees", [20, 44])
def test_oblique_scans_keep_their_voxels_and_sizes(tmp_path, degrees):
    angle = np.deg2rad(degrees)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    ras = np.ascontiguousarray(HU[:, ::-1, ::-1].transpose(2, 1, 0))
    nib.save(nib.Nifti1Image(ras, turn @ np.diag([0.7, 0.8, 5.0, 1.0])), tmp_path / "a.nii")
    scan = read_scan(tmp_path / "a.nii")
    np.testing.assert_array_equal(values(scan.path), HU)
    assert scan.spacing == pytest.approx((0.7, 0.8, 5.0))


def test_a_fourth_axis_of_one_volume_and_big_endian_are_read(tmp_path):
    ras = np.ascontiguousarray(HU[:, ::-1, ::-1].transpose(2, 1, 0))[..., None]
    header = nib.Nifti1Header(endianness=">")
    nib.save(nib.Nifti1Image(ras.astype(">i2"), np.diag([1, 1, 5, 1]), header), tmp_path / "a.nii")
    np.testing.assert_array_equal(values(tmp_path / "a.nii"), HU)


@pytest.mark.parametrize(
    ("offset", "layout", "numbers"),
    [
        (DIM, "<h", [-4]),
        (DIM, "<hhh", [32767, 32767, 32767]),
        (DATATYPE, "<h", [9999]),
        (VOX_OFFSET, "<f", [1e9]),
        (VOX_OFFSET, "<f", [np.nan]),
        (INTERCEPT, "<f", [np.nan]),
        (MAGIC, "<4s", [b"xxxx"]),
    ],
)
def test_damaged_headers_are_refused_by_name(tmp_path, offset, layout, numbers):
    path = patched(tmp_path / "a.nii", offset, layout, *numbers)
    with pytest.raises(UserError, match="a.nii: (damaged|needs more memory)"):
        read_scan(path)


@pytest.mark.parametrize("kind", ["empty", "folder", "loop"])
def test_files_that_are_none_are_refused_by_name(tmp_path, kind):
    path = tmp_path / "a.nii"
    if kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.name)
    with pytest.raises(UserError, match="a.nii: damaged, or not a NIfTI file"):
        read_scan(path)


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda content: content[:-4],
        lambda content: content[:-6] + bytes([content[-6] ^ 1]) + content[-5:],
        lambda content: content + b"junk",
    ],
    ids=["flip", "cut tail", "checksum", "junk"],
)
def test_the_checksum_of_compressed_scans_is_checked(tmp_path, damage):
    # Large, so that the header's reader does not come across the end of the file
    noise = np.random.default_rng(0).integers(-1000, 1000, (8, 200, 200)).astype(np.int16)
    content = write_scan(tmp_path / "a.nii", noise).read_bytes()
    path = tmp_path / "a.nii.gz"
    path.write_bytes(gzip.compress(content, 0))
    np.testing.assert_array_equal(values(path), noise)
    path.write_bytes(damage(gzip.compress(content, 0)))
    with pytest.raises(UserError, match="a.nii.gz: damaged"):
        read_scan(path)


@pytest.mark.parametrize("name", ["volume-{}.NII", "Volume-{}.nii.GZ", "volume-{}.nii"])
@pytest.mark.parametrize("case", ["0", "ä [x] {a=1},50%", "a.b", "n" * 200])
def test_names_of_any_case_and_characters(tmp_path, name, case):
    name = name.format(case)
    path = write_scan(tmp_path / "a.nii", HU)
    if name.lower().endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    path = path.rename(tmp_path / name)
    assert [(found.case, found.volume) for found in find_scans(tmp_path).scans] == [(case, path)]
    assert find_scan_inputs(str(path), tmp_path, "KEY") == [path]
    stem = f"{path.name.partition('-')[0]}-{case}".replace("volume", "segmentation")
    assert mask_name(path) == stem + (
        ".nii.gz" if "segmentation" in stem else "_segmentation.nii.gz"
    )
    np.testing.assert_array_equal(values(path), HU)


def test_more_than_512_slices_are_resized_one_by_one(tmp_path):
    deep = np.arange(600, dtype=np.int16)[:, None, None].repeat(4, axis=1).repeat(4, axis=2)
    scan = read_scan(write_scan(tmp_path / "a.nii", deep))
    grey = grey_slices(scan, SliceSettings(2, 3, 0, 600, "resize"))
    np.testing.assert_array_equal(grey[:, 0, 0], np.rint(np.arange(600) / 600 * 255))

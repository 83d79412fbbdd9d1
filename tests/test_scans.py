import nibabel as nib
import numpy as np
import pytest

from data_preparation.scans import (
    find_scans,
    header_doubts,
    read_scan,
    read_segmentation,
    restore_orientation,
)
from data_preparation.slices import (
    SliceSettings,
    fit_image,
    fit_mask,
    grey_slice,
    grey_slices,
    three_slices,
    unfit_mask,
)
from tests.scan_files import ALL_AXIS_CODES, SPACING, patient, write_case, write_scan
from utils.errors import UserError


def settings(height, width, fit="resize"):
    return SliceSettings(height, width, hu_min=-200, hu_max=250, fit=fit)


# Finding


def test_files_are_paired_in_natural_order(tmp_path):
    names = ["volume-10.nii", "segmentation-10.nii.gz", "volume-9.nii.gz", "volume-a b_1.nii"]
    for name in [*names, "segmentation-3.nii", "._volume-1.nii", "test-volume-1.nii", "notes.txt"]:
        (tmp_path / name).touch()

    found = find_scans(tmp_path)

    assert [(scan.case, scan.volume.name, scan.segmentation) for scan in found.scans] == [
        ("9", "volume-9.nii.gz", None),
        ("10", "volume-10.nii", tmp_path / "segmentation-10.nii.gz"),
        ("a b_1", "volume-a b_1.nii", None),
    ]
    assert found.orphans == [tmp_path / "segmentation-3.nii"]
    assert found.failures == {}


@pytest.mark.parametrize("kind", ["volume", "segmentation"])
def test_a_case_stored_twice_is_a_failure(tmp_path, kind):
    write_case(tmp_path)
    (tmp_path / f"{kind}-0.nii.gz").touch()

    found = find_scans(tmp_path)

    assert found.scans == []
    assert f"{kind}-0.nii and {kind}-0.nii.gz" in found.failures["0"]


def test_folders_without_scans_are_refused(tmp_path):
    with pytest.raises(UserError, match="folder not found"):
        find_scans(tmp_path / "absent")
    with pytest.raises(UserError, match="no volume-<case>.nii"):
        find_scans(tmp_path)


# Orientation


def test_there_are_48_orientations():
    assert len(set(ALL_AXIS_CODES)) == 48


@pytest.mark.parametrize("axis_codes", ALL_AXIS_CODES)
def test_every_orientation_gives_the_same_view_and_goes_back(tmp_path, axis_codes):
    hu, _ = patient()
    path = write_scan(tmp_path / "volume-0.nii", hu, axis_codes)

    scan = read_scan(path)

    assert scan.axis_codes == axis_codes
    np.testing.assert_array_equal([scan.values(index) for index in range(len(scan))], hu)
    native = restore_orientation(scan.stored, scan.axis_codes)
    np.testing.assert_array_equal(native, np.asanyarray(nib.load(path).dataobj))
    assert sorted(scan.spacing) == pytest.approx(sorted(SPACING))


def test_marked_voxel_ends_at_the_documented_place(tmp_path):
    # Stored L, P, S: index 0 is the patient's right, anterior, inferior end of each axis
    voxels = np.zeros((8, 6, 4), np.int16)
    voxels[1, 2, 3] = 100  # second from the right, third from the front, fourth from below
    path = tmp_path / "volume-0.nii"
    nib.save(nib.Nifti1Image(voxels, np.diag([-1.0, -1.0, 2.0, 1.0])), path)

    scan = read_scan(path)

    assert scan.stored.shape == (4, 6, 8)
    assert np.argwhere(scan.stored).tolist() == [[3, 2, 1]]


def test_axis_codes_override_the_header(tmp_path):
    hu, _ = patient()
    path = write_scan(tmp_path / "volume-0.nii", hu, "RAS")

    scan = read_scan(path, axis_codes="LAS")  # the header errs in left and right

    np.testing.assert_array_equal(scan.values(0), hu[0][:, ::-1])


def test_the_mask_turns_with_the_volume_and_not_by_its_own_affine(tmp_path):
    hu, labels = patient()
    volume = read_scan(write_scan(tmp_path / "volume-0.nii", hu, "RAS"))
    path = write_scan(tmp_path / "segmentation-0.nii", labels, "RAS")
    image = nib.load(path)
    voxels = np.asanyarray(image.dataobj).copy()  # the file is written over
    nib.save(nib.Nifti1Image(voxels, image.affine @ np.diag([-1, 1, 1, 1])), path)

    segmentation = read_segmentation(path, volume)

    np.testing.assert_array_equal(segmentation.labels(1), labels[1])
    assert "its affine is not that of volume-0.nii" in header_doubts(volume, segmentation)[0]


def test_doubtful_headers_are_named(tmp_path):
    hu, _ = patient()
    path = write_scan(tmp_path / "volume-0.nii", hu)
    assert header_doubts(read_scan(path)) == []

    image = nib.load(path)
    image.set_sform(None, code=0)
    image.set_qform(None, code=0)
    nib.save(image, tmp_path / "volume-1.nii")
    assert "neither qform nor sform" in header_doubts(read_scan(tmp_path / "volume-1.nii"))[0]

    nib.save(nib.Nifti1Image(np.asanyarray(image.dataobj), np.eye(4)), tmp_path / "volume-2.nii")
    assert "affine is the identity" in header_doubts(read_scan(tmp_path / "volume-2.nii"))[0]
    assert header_doubts(read_scan(tmp_path / "volume-2.nii", axis_codes="RAS")) == []


# Voxels


def test_scale_factors_apply_per_slice_in_float32(tmp_path):
    path = tmp_path / "volume-0.nii"
    image = nib.Nifti1Image(np.full((2, 3, 4), 600, np.int16), np.eye(4))
    image.header.set_slope_inter(2.0, -1024.0)
    image.to_filename(path)
    # nibabel resets the scale on saving, so it is written into the header's bytes
    content = bytearray(path.read_bytes())
    content[112:120] = np.array([2.0, -1024.0], "<f4").tobytes()
    path.write_bytes(content)

    scan = read_scan(path)

    assert scan.stored.dtype == np.int16
    assert scan.values(0).dtype == np.float32
    assert scan.value_range() == (176.0, 176.0)
    np.testing.assert_array_equal(scan.values(0), np.full((3, 2), 176.0))


@pytest.mark.parametrize("store_as", [np.uint8, np.int8, np.int16, np.float32, ">i2", ">f8"])
@pytest.mark.parametrize("top", [1, 2])
def test_labels_survive_a_scale_factor(tmp_path, store_as, top):
    labels = np.minimum(patient()[1], top)
    volume = read_scan(write_scan(tmp_path / "volume-0.nii", labels.astype(np.int16)))
    # A float array stored as integers gets a scale factor: 1 is read as 0.996, say
    path = write_scan(
        tmp_path / "segmentation-0.nii", labels.astype(np.float64), store_as=np.dtype(store_as)
    )

    segmentation = read_segmentation(path, volume)

    read = np.stack([segmentation.labels(index) for index in range(len(segmentation))])
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, labels)


@pytest.mark.parametrize(
    ("label", "dtype", "found"),
    [(255, np.uint8, "255"), (3, np.uint8, "3"), (-1, np.int16, "-1"), (0.5, np.float32, "0.5")],
)
def test_unknown_labels_are_refused(tmp_path, label, dtype, found):
    labels = patient()[1].astype(dtype)
    labels[2, 3, 4] = label
    scan = read_scan(write_scan(tmp_path / "segmentation-0.nii", labels))
    with pytest.raises(UserError, match=rf"segmentation-0.nii: found label {found} in slice 2;"):
        scan.labels(2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_voxels_without_a_value_are_refused(tmp_path, value):
    hu = patient()[0].astype(np.float32)
    hu[1, 2, 3] = value
    scan = read_scan(write_scan(tmp_path / "volume-0.nii", hu))
    scan.values(0)
    with pytest.raises(UserError, match="NaN or infinite voxels in slice 1"):
        scan.values(1)


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_damaged_files_are_refused_by_name(tmp_path, ending):
    write_case(tmp_path, ending=ending)
    path = tmp_path / f"volume-0.{ending}"
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[-6] ^= 0xFF  # in the checksum where the file is compressed
    damaged = [good[: len(good) // 2], good[:-3], good[:100], b"", b"not a scan" * 100]
    for content in damaged + ([bytes(flipped)] if ending == "nii.gz" else []):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"volume-0.{ending}: damaged, or not a NIfTI file"):
            read_scan(path)


def test_other_shapes_and_types_are_refused(tmp_path):
    path = tmp_path / "volume-0.nii"
    for shape in [(4, 5), (4, 5, 6, 2)]:
        nib.save(nib.Nifti1Image(np.zeros(shape, np.int16), np.eye(4)), path)
        with pytest.raises(UserError, match=r"found shape \(4, 5.*expected three axes"):
            read_scan(path)
    nib.save(nib.Nifti1Image(np.zeros((2, 3, 4), np.complex64), np.eye(4)), path)
    with pytest.raises(UserError, match="complex64; expected real numbers"):
        read_scan(path)

    nib.save(nib.Nifti1Image(np.zeros((4, 5, 6, 1), np.int16), np.eye(4)), path)
    assert read_scan(path).shape == (4, 5, 6)


def test_a_mask_of_another_shape_is_refused(tmp_path):
    hu, labels = patient()
    volume = read_scan(write_scan(tmp_path / "volume-0.nii", hu))
    path = write_scan(tmp_path / "segmentation-0.nii", labels[:2])
    with pytest.raises(UserError, match=r"found shape \(8, 6, 2\); volume-0.nii has \(8, 6, 3\)"):
        read_segmentation(path, volume)


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_scans_are_mapped_and_not_held_in_memory(tmp_path, ending):
    scan = read_scan(write_scan(tmp_path / f"volume-0.{ending}", patient()[0]))
    first = scan.values(0)  # afterwards its memory is given back
    np.testing.assert_array_equal(scan.values(0), first)
    base = scan.stored
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


# From HU to the network's input


@pytest.mark.parametrize(
    ("hu", "grey"),
    [
        (-3024, 0),
        (-200, 0),
        (-199, 1),
        (0, 113),
        (25, 128),
        (50, 142),
        (249, 254),
        (250, 255),
        (3071, 255),
    ],
)
def test_the_window_is_the_same_in_every_slice(hu, grey):
    # (hu + 200) / 450 * 255, rounded: 25 HU is 127.5, 0 HU is 113.3, 50 HU is 141.7
    constant = np.full((4, 4), hu, np.float32)
    np.testing.assert_array_equal(grey_slice(constant, settings(4, 4)), np.full((4, 4), grey))
    mixed = np.float32([[hu, -500], [2000, -200]])
    assert grey_slice(mixed, settings(2, 2))[0, 0] == grey


def test_hu_are_clipped_before_they_are_averaged():
    # 2 x 1 to 1 x 1 px: the mean of 250 (metal of 3000, clipped) and -200 is 25 HU
    metal_and_air = np.float32([[3000], [-1000]])
    np.testing.assert_array_equal(grey_slice(metal_and_air, settings(1, 1)), [[128]])


def test_neighbours_are_red_green_and_blue_and_repeat_at_the_ends():
    grey = np.arange(3, dtype=np.uint8)[:, None, None] * np.ones((3, 2, 5), np.uint8)
    assert three_slices(grey, 0).shape == (2, 5, 3)
    assert [three_slices(grey, index)[0, 0].tolist() for index in range(3)] == [
        [0, 0, 1],
        [0, 1, 2],
        [1, 2, 2],
    ]
    assert three_slices(grey[:1], 0)[0, 0].tolist() == [0, 0, 0]


def test_a_volume_alone_is_enough_for_the_input(tmp_path):
    hu, _ = patient(slices=3, rows=6, columns=8)
    scan = read_scan(write_scan(tmp_path / "volume-0.nii.gz", hu, "PIR"))
    grey = grey_slices(scan, settings(5, 3))
    assert grey.shape == (3, 5, 3)
    assert grey.dtype == np.uint8


CROPS = [
    # size, target, expected columns of [1 … size]
    (4, 4, [1, 2, 3, 4]),
    (5, 3, [2, 3, 4]),
    (5, 4, [1, 2, 3, 4]),
    (6, 3, [2, 3, 4]),
    (3, 5, [0, 1, 2, 3, 0]),
    (3, 6, [0, 1, 2, 3, 0, 0]),
]


@pytest.mark.parametrize(("size", "target", "expected"), CROPS)
def test_crop_is_centred_and_pads_with_zero(size, target, expected):
    image = np.arange(1, size + 1, dtype=np.float32)
    across = fit_image(np.tile(image, (2, 1)), settings(2, target, "crop"))
    down = fit_image(np.tile(image, (2, 1)).T, settings(target, 2, "crop"))
    np.testing.assert_array_equal(across, [expected, expected])
    np.testing.assert_array_equal(down, across.T)


@pytest.mark.parametrize("fit", ["resize", "crop"])
@pytest.mark.parametrize("size", [(7, 10), (8, 5), (16, 16)])
@pytest.mark.parametrize("target", [(16, 21), (17, 32)])
def test_a_mask_that_was_enlarged_comes_back_unchanged(fit, size, target):
    mask = np.random.default_rng(1).integers(0, 3, size).astype(np.uint8)
    fitted = fit_mask(mask, settings(*target, fit))
    assert fitted.shape == target
    np.testing.assert_array_equal(unfit_mask(fitted, *size, fit), mask)


@pytest.mark.parametrize("target", [(3, 4), (4, 9), (9, 3)])
def test_what_crop_cuts_away_comes_back_as_background(target):
    mask = np.ones((7, 6), np.uint8)
    back = unfit_mask(fit_mask(mask, settings(*target, "crop")), 7, 6, "crop")
    kept = min(target[0], 7) * min(target[1], 6)
    assert back.shape == (7, 6)
    assert back.sum() == kept
    assert back[3, 2] == 1  # the centre


def test_a_mask_that_was_reduced_comes_back_in_place():
    mask = np.zeros((9, 12), np.uint8)
    mask[3:6, 4:8] = 2  # the middle of a 3 x 3 grid
    small = fit_mask(mask, settings(3, 3))
    np.testing.assert_array_equal(small, [[0, 0, 0], [0, 2, 0], [0, 0, 0]])
    np.testing.assert_array_equal(unfit_mask(small, 9, 12, "resize"), mask)

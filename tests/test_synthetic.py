"""Phantom scans: what is drawn, how it is stored, and what is never overwritten."""

import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from scipy.ndimage import binary_dilation

from data_preparation.phantom import HU_RANGE, LESION, LIVER, draw_phantom
from data_preparation.phantom_anatomy import (
    Organ,
    above_diaphragm,
    ellipsoid,
    smooth_maximum,
)
from data_preparation.synthetic import PHANTOM_MARK, STORED_AXES, phantom_images, write_phantoms
from utils.errors import UserError
from utils.paths import atomic_path

ROOT = Path(__file__).resolve().parents[1]
SEED, SIZE, SLICES = 5, 64, 20
CASES = range(8)
FOLDERS = {"val": "data/Training Batch 1", "train": "data/Training Batch 2"}


@pytest.fixture(scope="module")
def phantoms():
    return [draw_phantom(SEED, case, SIZE, SLICES) for case in CASES]


@pytest.fixture(scope="module")
def images():
    return [phantom_images(SEED, case, SIZE, SLICES) for case in CASES[: len(STORED_AXES) + 1]]


@pytest.fixture
def small_cfg(make_cfg):
    def make(**changes):
        phantom = {"TRAIN_CASES": 3, "VAL_CASES": 2, "SIZE": 32, "SLICES": 6}
        return make_cfg(PHANTOM={**phantom, **changes.pop("PHANTOM", {})}, **changes)

    return make


def files_in(work_dir: Path, split: str) -> dict[str, bytes]:
    folder = work_dir / FOLDERS[split]
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(cases: range) -> set[str]:
    return {f"{kind}-{case}.nii" for kind in ("volume", "segmentation") for case in cases}


@pytest.mark.parametrize(
    ("point", "level"),
    [((1, 2, 3), 1), ((3, 2, 3), 0), ((1, 6, 3), 0), ((1, 2, 8), 0), ((5, 2, 3), -1)],
)
@pytest.mark.parametrize("power", [2.0, 4.0])
def test_ellipsoid_level_along_its_axes(point, level, power):
    organ = Organ("liver", (1, 2, 3), (2, 4, 5), power=power)
    assert ellipsoid(np.float32(point), organ) == pytest.approx(level, abs=1e-6)


def test_ellipsoid_is_turned_from_left_towards_back():
    organ = Organ("liver", (0, 0, 0), (2, 1, 1), turn=90)
    assert ellipsoid(np.float32([0, 2, 0]), organ) == pytest.approx(0, abs=1e-6)


def test_smooth_maximum_rounds_the_crease_only():
    a, b = np.float32([1, 0, 0.5]), np.float32([0, 0, 0.4])
    np.testing.assert_allclose(smooth_maximum(a, b, 0.2), [1, 0.05, 0.5125], rtol=1e-6)


def test_diaphragm_is_higher_on_the_right():
    right, left, wall = np.float32([[-0.4, 0, 0.8], [0.4, 0, 0.8], [-1, 0, 0.8]])
    assert above_diaphragm(right) < above_diaphragm(left) < 0 < above_diaphragm(wall)


def test_same_case_is_the_same_whatever_was_drawn_before(phantoms):
    hu, labels, spacing = draw_phantom(SEED, 3, SIZE, SLICES)
    np.testing.assert_array_equal(hu, phantoms[3][0])
    np.testing.assert_array_equal(labels, phantoms[3][1])
    assert spacing == phantoms[3][2]


@pytest.mark.parametrize(("seed", "case"), [(SEED, 4), (SEED + 1, 3)])
def test_seed_and_case_both_matter(phantoms, seed, case):
    assert draw_phantom(seed, case, SIZE, SLICES)[2] != phantoms[3][2]


def test_types_ranges_and_shapes(phantoms):
    for hu, labels, _ in phantoms:
        assert (hu.dtype, labels.dtype) == (np.int16, np.uint8)
        assert hu.shape == labels.shape
        assert hu.shape[:2] == (SIZE, SIZE)
        assert abs(hu.shape[2] - SLICES) <= 0.13 * SLICES + 0.5
        assert hu.min() >= HU_RANGE[0]
        assert 300 < hu.max() <= HU_RANGE[1]  # bone
        assert -1024 <= np.median(hu[:3]) < -950  # air at the edge


def test_every_third_case_has_no_lesion_and_the_others_do(phantoms):
    label_sets = [set(np.unique(labels)) for _, labels, _ in phantoms]
    with_lesions, without = {0, LIVER, LESION}, {0, LIVER}
    assert label_sets == [without if case % 3 == 2 else with_lesions for case in CASES]


def test_lesions_lie_in_the_liver_and_are_darker(phantoms):
    for case in (0, 1, 4):
        hu, labels, _ = phantoms[case]
        liver, lesion = labels == LIVER, labels == LESION
        assert 20 < np.median(hu[liver]) - np.median(hu[lesion]) < 55
        rim = binary_dilation(lesion) & ~lesion
        assert liver[rim].mean() > 0.75


@pytest.mark.parametrize("slices", [3, 9, 30])
def test_no_liver_in_the_first_and_last_slice(slices):
    for case in range(10):
        with_liver = draw_phantom(SEED, case, 32, slices)[1].any((0, 1))
        assert with_liver.any()
        assert not with_liver[[0, -1]].any()


def test_volumes_are_anatomical(phantoms):
    litres = [(labels > 0).sum() * np.prod(spacing) / 1e6 for _, labels, spacing in phantoms]
    assert 0.6 < min(litres) < 0.75 * max(litres) < max(litres) < 3.5


def test_spacing_and_slice_count_vary_and_the_field_is_as_in_lits(phantoms):
    fields = [spacing[0] * SIZE for _, _, spacing in phantoms]
    assert all(0.60 * 512 <= field <= 0.95 * 512 for field in fields)
    assert len({spacing for _, _, spacing in phantoms}) == len(phantoms)
    assert len({hu.shape[2] for hu, _, _ in phantoms}) > 2


def test_no_threshold_segments_the_liver(phantoms):
    hu = np.concatenate([scan.ravel() for scan, _, _ in phantoms])
    liver = np.concatenate([labels.ravel() > 0 for _, labels, _ in phantoms])
    edges = np.arange(0, 251, 5)
    below = [np.searchsorted(np.sort(values), edges) for values in (hu, hu[liver])]
    predicted, hit = (counts[None, :] - counts[:, None] for counts in below)  # [low, high)
    dice = np.where(predicted > 0, 2 * hit / np.maximum(predicted + liver.sum(), 1), 0)
    assert 0.3 < dice.max() < 0.6


def test_orientations_cycle_and_both_files_agree(images):
    for case, pair in enumerate(images):
        codes = STORED_AXES[case % len(STORED_AXES)]
        for image in pair:
            assert "".join(nib.aff2axcodes(image.affine)) == codes
            for form in (image.get_sform(coded=True), image.get_qform(coded=True)):
                assert form[1] == 1
                np.testing.assert_allclose(form[0], pair[0].affine, atol=1e-3)
            np.testing.assert_allclose(
                image.header.get_zooms(), nib.affines.voxel_sizes(image.affine), rtol=1e-6
            )


def test_anatomy_is_consistent_when_read_by_affine(images):
    for volume, segmentation in images:
        hu, labels = (
            np.asarray(nib.as_closest_canonical(image).dataobj) for image in (volume, segmentation)
        )
        middle = (np.array(hu.shape) - 1) / 2  # axes to left-to-right, anterior, superior
        liver = np.argwhere(labels > 0).mean(axis=0)
        assert liver[0] > middle[0] + 0.08 * hu.shape[0]  # RAS: the first axis runs to the right
        bone = hu[hu.shape[0] // 2 - 5 : hu.shape[0] // 2 + 5] > 150
        assert np.argwhere(bone)[:, 1].mean() < middle[1] - 0.1 * hu.shape[1]  # spine behind
        lung_share = ((hu > -900) & (hu < -700)).mean(axis=(0, 1))
        assert lung_share[-1] > 0.1 > 0.02 > lung_share[0]  # lungs above


def test_stored_voxels_are_those_drawn(phantoms, images):
    for (hu, labels, spacing), pair in zip(phantoms, images, strict=False):
        for drawn, image in zip((hu, labels), pair, strict=True):
            transform = nib.orientations.ornt_transform(
                nib.io_orientation(image.affine), nib.orientations.axcodes2ornt("LPS")
            )
            back = image.as_reoriented(transform)
            np.testing.assert_array_equal(np.asarray(back.dataobj), drawn)
            np.testing.assert_allclose(nib.affines.voxel_sizes(back.affine), spacing, rtol=1e-6)


def test_two_runs_write_the_same_bytes(small_cfg, tmp_path):
    write_phantoms(small_cfg())
    first = {split: files_in(tmp_path, split) for split in FOLDERS}
    write_phantoms(small_cfg())
    assert {split: files_in(tmp_path, split) for split in FOLDERS} == first
    assert set(first["val"]) == names(range(2))
    assert set(first["train"]) == names(range(2, 5))


def test_another_run_leaves_no_case_in_both_folders(small_cfg, tmp_path):
    write_phantoms(small_cfg())
    write_phantoms(small_cfg(PHANTOM={"VAL_CASES": 3, "TRAIN_CASES": 1}))
    assert set(files_in(tmp_path, "val")) == names(range(3))
    assert set(files_in(tmp_path, "train")) == names(range(3, 4))


def test_split_without_folder_is_skipped(small_cfg, tmp_path):
    write_phantoms(small_cfg(DATA_PREPARATION={"SCANS_TRAIN_DATA_PATH": None}))
    assert set(files_in(tmp_path, "val")) == names(range(2))
    assert not (tmp_path / FOLDERS["train"]).exists()


@pytest.mark.parametrize(("train", "val"), [("scans", "./scans"), (None, None)])
def test_splits_without_a_folder_of_their_own_are_refused(small_cfg, tmp_path, train, val):
    paths = {"SCANS_TRAIN_DATA_PATH": train, "SCANS_VAL_DATA_PATH": val}
    with pytest.raises(UserError, match=f"SCANS_VAL_DATA_PATH={val} .* different folder"):
        write_phantoms(small_cfg(DATA_PREPARATION=paths))
    assert list(tmp_path.iterdir()) == []


def _foreign_scan(path: Path) -> None:
    nib.save(nib.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.eye(4)), path)


def _damaged_scan(path: Path) -> None:
    path.write_bytes(b"not a scan")


@pytest.mark.parametrize("write", [_foreign_scan, _damaged_scan])
@pytest.mark.parametrize("name", ["volume-3.nii", "segmentation-99.nii", "scan.nii.gz"])
def test_scans_that_are_not_phantoms_are_never_touched(small_cfg, tmp_path, write, name):
    folder = tmp_path / FOLDERS["train"]
    folder.mkdir(parents=True)
    write(folder / name)
    before = files_in(tmp_path, "train")
    with pytest.raises(UserError, match=f"SCANS_TRAIN_DATA_PATH: {folder} holds .* {name}"):
        write_phantoms(small_cfg())
    assert files_in(tmp_path, "train") == before
    assert not (tmp_path / FOLDERS["val"]).exists()


def test_leftover_of_an_interrupted_run_is_no_obstacle(small_cfg, tmp_path):
    path = tmp_path / FOLDERS["val"] / "volume-0.nii"
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"half")
        leftover = temporary.with_name(f".1{temporary.name}")
        leftover.write_bytes(b"half")
    path.unlink()
    write_phantoms(small_cfg())
    assert set(files_in(tmp_path, "val")) == names(range(2)) | {leftover.name}


@pytest.mark.parametrize(
    "start",
    [[str(ROOT / "data_preparation" / "synthetic.py")], ["-m", "data_preparation.synthetic"]],
)
def test_command_line(tmp_path, start):
    overrides = ["PHANTOM.TRAIN_CASES=1", "PHANTOM.VAL_CASES=1", "PHANTOM.SIZE=32", "SEED=7"]
    command = [sys.executable, *start, f"WORK_DIR={tmp_path}", *overrides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(files_in(tmp_path, "val")) == names(range(1))
    assert set(files_in(tmp_path, "train")) == names(range(1, 2))
    volume = nib.load(tmp_path / FOLDERS["train"] / "volume-1.nii")
    assert volume.header["descrip"].item() == PHANTOM_MARK
    np.testing.assert_array_equal(
        np.asarray(volume.dataobj), np.asarray(phantom_images(7, 1, 32, 28)[0].dataobj)
    )


def test_drawing_needs_no_tensorflow():
    code = "import sys, data_preparation.synthetic; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0

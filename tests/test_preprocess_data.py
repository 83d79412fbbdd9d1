import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from data_preparation.scans import restore_orientation
from data_preparation.slices import unfit_mask
from tests.scan_files import (
    ALL_AXIS_CODES,
    finished,
    patient,
    pictures,
    prepare,
    scan_arguments,
    truncate,
    write_case,
)
from utils.case_records import cases_file, read_cases
from utils.images import read_image, read_mask
from utils.log import logger

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture
def warnings_shown(monkeypatch, caplog):
    """What the project's logger says, also after another test has set it up for the screen."""
    monkeypatch.setattr(logger, "propagate", True)
    return caplog


def run_script(work_dir: Path, *overrides: str, by: str = "path") -> subprocess.CompletedProcess:
    script = {
        "path": [str(PROJECT / "data_preparation" / "preprocess_data.py")],
        "module": ["-m", "data_preparation.preprocess_data"],
    }[by]
    folder = work_dir if by == "path" else PROJECT
    command = [sys.executable, *script, *scan_arguments(work_dir, *overrides)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


# What is written


def test_all_48_orientations_give_the_same_files(tmp_path):
    for axis_codes in ALL_AXIS_CODES:
        write_case(tmp_path / "scans", axis_codes, axis_codes)

    prepare(tmp_path, "DATA_PREPARATION.RESIZED_HEIGHT=5")

    for kind, slices in (("images", 3), ("mask", 3)):
        folder = tmp_path / "data/train" / kind
        assert len(list(folder.iterdir())) == 48 * slices
        for index in range(slices):
            files = [*folder.glob(f"*_{index}.png")]
            assert len(files) == 48
            assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.parametrize("labels", ["liver", "liver_and_tumour"])
def test_images_and_masks_hold_what_the_scan_holds(tmp_path, labels):
    hu, truth = patient()
    write_case(tmp_path / "scans", "a b", "LPS", "nii.gz")

    prepare(tmp_path, f"DATA_PREPARATION.LABELS={labels}", "OUTPUT.CLASSES=3")

    grey = np.rint((np.clip(hu, -200, 250) + 200) / 450 * 255)
    for index, around in enumerate([(0, 0, 1), (0, 1, 2), (1, 2, 2)]):
        image = read_image(tmp_path / f"data/train/images/image_a b_{index}.png", 3)
        np.testing.assert_array_equal(image, np.stack(grey[list(around)], axis=-1))
        mask = read_mask(tmp_path / f"data/train/mask/mask_a b_{index}.png")
        expected = truth[index] if labels == "liver_and_tumour" else truth[index] > 0
        np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize("fit", ["resize", "crop"])
def test_a_mask_goes_back_to_the_native_grid(tmp_path, fit):
    write_case(tmp_path / "scans", "0", "PIR")

    prepare(
        tmp_path,
        f"DATA_PREPARATION.FIT={fit}",
        "DATA_PREPARATION.RESIZED_HEIGHT=13",  # rows 6 to 13, columns 8 to 17
        "DATA_PREPARATION.RESIZED_WIDTH=17",
    )

    record = read_cases(cases_file(tmp_path / "data/train/images"))["0"]
    masks = [
        unfit_mask(
            read_mask(tmp_path / f"data/train/mask/mask_0_{index}.png"),
            record["rows"],
            record["columns"],
            record["parameters"]["fit"],
        )
        for index in range(record["slices"])
    ]
    assert masks[0].shape == (6, 8)
    native = nib.load(tmp_path / "scans/segmentation-0.nii")
    restored = restore_orientation(np.stack(masks), record["axis_codes"])
    np.testing.assert_array_equal(restored, np.asanyarray(native.dataobj) > 0)
    assert record["shape"] == list(native.shape)
    np.testing.assert_array_equal(record["affine"], native.affine)


def test_the_record_of_a_case(tmp_path):
    hu, labels = patient()
    write_case(tmp_path / "scans", "0", "LPS")

    prepare(tmp_path, "DATA_PREPARATION.AXIS_CODES={0: LPS}")

    record = read_cases(tmp_path / "data/train/cases.json")["0"]
    volume = tmp_path / "scans" / "volume-0.nii"
    assert record["sources"]["volume"] == {
        "path": str(volume),
        "bytes": volume.stat().st_size,
        "modified_ns": volume.stat().st_mtime_ns,
    }
    assert record["parameters"] == {
        "height": 6,
        "width": 8,
        "hu_min": -200.0,
        "hu_max": 250.0,
        "fit": "resize",
        "labels": "liver",
        "axis_codes": "LPS",
    }
    assert (record["slices"], record["rows"], record["columns"]) == (3, 6, 8)
    assert record["axis_codes"] == "LPS"
    assert record["orientation"] == [[2, 1], [1, 1], [0, 1]]
    assert record["spacing_mm"] == pytest.approx([0.7, 0.8, 5.0])
    assert record["hu_range"] == [hu.min(), hu.max()]
    counts = [int((labels == label).sum()) for label in range(3)]
    assert list(record["label_voxels"].items()) == list(
        zip(["background", "liver", "tumour"], counts, strict=True)
    )
    assert record["warnings"] == []


def test_a_doubtful_header_is_warned_about_and_recorded(tmp_path, warnings_shown):
    write_case(tmp_path / "scans")
    path = tmp_path / "scans/segmentation-0.nii"
    image = nib.load(path)
    shifted = image.affine + [[0, 0, 0, 9.0], [0] * 4, [0] * 4, [0] * 4]
    nib.save(nib.Nifti1Image(np.asanyarray(image.dataobj).copy(), shifted), path)

    prepare(tmp_path)

    (warning,) = read_cases(tmp_path / "data/train/cases.json")["0"]["warnings"]
    assert "its affine is not that of volume-0.nii" in warning
    assert warning in warnings_shown.text


def test_the_real_ct_lies_as_documented(tmp_path, real_ct):
    shutil.copytree(real_ct, tmp_path / "scans")

    prepare(tmp_path, "DATA_PREPARATION.RESIZED_HEIGHT=100", "DATA_PREPARATION.RESIZED_WIDTH=100")

    masks = [read_mask(tmp_path / f"data/train/mask/mask_0_{index}.png") for index in range(30)]
    slices, rows, columns = np.nonzero(np.stack(masks))
    assert columns.mean() < 45  # the liver is on the patient's right: left in the picture
    assert rows.mean() < 50  # and rather in front
    assert slices.mean() > 15  # in the upper half of this scan of the abdomen
    grey = read_image(tmp_path / "data/train/images/image_0_15.png", 3)[..., 1]
    vertebra = grey[50:90, 40:60].mean()
    assert vertebra > grey[10:50, 40:60].mean()  # the spine is behind: low in the picture


# The command


def test_the_command_names_the_failed_case_and_finishes_the_others(tmp_path):
    for case, axis_codes in (("0", "LPS"), ("1", "RAS"), ("2", "LAS")):
        write_case(tmp_path / "scans", case, axis_codes)
    truncate(tmp_path / "scans/volume-1.nii")

    first = run_script(tmp_path)

    assert first.returncode == 1, first.stderr
    assert "Cases failed (1)" in first.stderr
    assert "volume-1.nii: damaged, or not a NIfTI file" in first.stderr
    assert "Traceback" not in first.stderr
    assert finished(tmp_path) == ["0", "2"]
    before = pictures(tmp_path)
    assert len(before) == 2 * 2 * 3

    write_case(tmp_path / "scans", "1")
    second = run_script(tmp_path, by="module")

    assert second.returncode == 0, second.stderr
    assert "1 cases to prepare, 2 finished already" in second.stderr  # the log reaches the screen
    assert finished(tmp_path) == ["0", "1", "2"]
    assert before.items() < pictures(tmp_path).items()


def test_the_command_refuses_a_missing_folder(tmp_path):
    result = run_script(tmp_path)
    assert result.returncode == 2
    assert "DATA_PREPARATION.SCANS_TRAIN_DATA_PATH: folder not found" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_package_does_not_load_tensorflow():
    code = (
        "import sys, data_preparation.preprocess_data, data_preparation.verify_data;"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == 0

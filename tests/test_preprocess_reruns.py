import os
import shutil

import cv2
import numpy as np
import pytest

from data_preparation import prepare_case
from data_preparation import preprocess_data as module
from data_preparation.processes import run_in_processes
from tests.scan_files import (
    finished,
    patient,
    pictures,
    prepare,
    scan_config,
    truncate,
    write_case,
    write_scan,
)
from utils.case_records import read_cases
from utils.errors import FailedCasesError, UserError
from utils.images import read_mask
from utils.log import logger


@pytest.fixture
def warnings_shown(monkeypatch, caplog):
    """What the project's logger says, also after another test has set it up for the screen."""
    monkeypatch.setattr(logger, "propagate", True)
    return caplog


# Second runs


def test_a_second_run_rewrites_nothing(tmp_path):
    write_case(tmp_path / "scans", "0")
    write_case(tmp_path / "scans", "image_1", "LAS")  # "image" occurs in file names as well
    prepare(tmp_path)
    before = pictures(tmp_path) | {"": (tmp_path / "data/train/cases.json").stat().st_mtime_ns}

    prepare(tmp_path)

    assert len(before) == 2 * 2 * 3 + 1
    assert before == pictures(tmp_path) | {
        "": (tmp_path / "data/train/cases.json").stat().st_mtime_ns
    }


def _touch_source(work_dir):
    os.utime(work_dir / "scans/segmentation-0.nii", ns=(1, 1))
    return []


def _delete_image(work_dir):
    (work_dir / "data/train/images/image_0_1.png").unlink()
    return []


def _delete_mask(work_dir):
    (work_dir / "data/train/mask/mask_0_2.png").unlink()
    return []


def _add_slice(work_dir):
    shutil.copy(
        work_dir / "data/train/images/image_0_1.png", work_dir / "data/train/images/image_0_3.png"
    )
    return []


def _override_axes(work_dir):
    return ["DATA_PREPARATION.AXIS_CODES={0: LAS}"]


@pytest.mark.parametrize(
    "change", [_touch_source, _delete_image, _delete_mask, _add_slice, _override_axes]
)
def test_a_change_redoes_its_case_alone(tmp_path, change):
    for case in ("0", "00"):
        write_case(tmp_path / "scans", case)
    prepare(tmp_path)
    before = pictures(tmp_path)

    overrides = change(tmp_path)
    prepare(tmp_path, *overrides)

    after = pictures(tmp_path)
    assert after.keys() == before.keys()
    redone = {name for name in after if after[name] != before[name]}
    assert redone == {f"{kind}_0_{index}.png" for kind in ("image", "mask") for index in range(3)}


def test_other_parameters_redo_every_case(tmp_path):
    write_case(tmp_path / "scans")
    prepare(tmp_path)
    prepare(tmp_path, "DATA_PREPARATION.RESIZED_HEIGHT=7")
    assert read_mask(tmp_path / "data/train/mask/mask_0_0.png").shape == (7, 8)
    assert read_cases(tmp_path / "data/train/cases.json")["0"]["parameters"]["height"] == 7


def test_a_shorter_scan_leaves_no_old_slices(tmp_path):
    write_case(tmp_path / "scans")
    prepare(tmp_path)
    hu, labels = patient(slices=2)
    write_scan(tmp_path / "scans/volume-0.nii", hu)
    write_scan(tmp_path / "scans/segmentation-0.nii", labels)
    prepare(tmp_path)
    assert sorted(pictures(tmp_path)) == [
        "image_0_0.png",
        "image_0_1.png",
        "mask_0_0.png",
        "mask_0_1.png",
    ]


def test_cases_that_left_the_scan_folder_are_named(tmp_path, warnings_shown):
    for case in ("0", "1"):
        write_case(tmp_path / "scans", case)
    prepare(tmp_path)
    (tmp_path / "scans/volume-1.nii").unlink()
    prepare(tmp_path)
    assert "cases that are not among the scans, which training will use: 1" in warnings_shown.text
    assert "segmentation-1.nii: no volume belongs to this mask" in warnings_shown.text


# Failures


def _truncated(folder):
    truncate(folder / "volume-bad.nii")


def _label_255(folder):
    write_scan(folder / "segmentation-bad.nii", patient()[1] * np.uint8(255))


def _other_shape(folder):
    write_scan(folder / "segmentation-bad.nii", patient(rows=5)[1])


def _no_mask(folder):
    (folder / "segmentation-bad.nii").unlink()


def _twice(folder):
    (folder / "volume-bad.nii.gz").touch()


def _broken_link(folder):
    (folder / "volume-bad.nii").unlink()
    (folder / "volume-bad.nii").symlink_to(folder / "absent.nii")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_truncated, "volume-bad.nii: damaged, or not a NIfTI file"),
        (_label_255, "segmentation-bad.nii: found label 255 in slice 0"),
        (_other_shape, r"segmentation-bad.nii: found shape \(8, 5, 3\)"),
        (_no_mask, r"volume-bad.nii: found no segmentation-bad.nii\[.gz\]"),
        (_twice, "found volume-bad.nii and volume-bad.nii.gz"),
        (_broken_link, "volume-bad.nii: cannot be read"),
    ],
)
def test_a_case_that_fails_is_named_and_leaves_nothing(tmp_path, spoil, message):
    for case in ("good", "bad", "last"):
        write_case(tmp_path / "scans", case)
    prepare(tmp_path)
    spoil(tmp_path / "scans")

    with pytest.raises(
        FailedCasesError, match=f"Cases failed \\(1\\):\\n  - TRAIN case bad: .*{message}"
    ):
        prepare(tmp_path)

    assert finished(tmp_path) == ["good", "last"]
    assert sorted({name.split("_")[1] for name in pictures(tmp_path)}) == ["good", "last"]


def test_an_unexpected_error_concerns_its_case_only(tmp_path, monkeypatch):
    for case in ("good", "bad"):
        write_case(tmp_path / "scans", case)

    def write_bytes(path, content):
        if path.name == "mask_bad_1.png":
            raise OSError(28, "No space left on device")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    monkeypatch.setattr(prepare_case, "write_bytes", write_bytes)
    with pytest.raises(FailedCasesError, match="case bad: .*No space left on device"):
        prepare(tmp_path)
    assert len(pictures(tmp_path)) == 6
    assert finished(tmp_path) == ["good"]


def _exit_on_two(number):
    if number == 2:
        os._exit(9)
    return (number, cv2.getNumThreads())


@pytest.mark.timeout(60)
def test_a_process_that_dies_is_named_and_the_others_finish():
    results = dict(run_in_processes(_exit_on_two, range(5), workers=2))
    assert results == {0: (0, 1), 1: (1, 1), 2: None, 3: (3, 1), 4: (4, 1)}


def test_no_jobs_need_no_process():
    assert list(run_in_processes(_exit_on_two, [], workers=2)) == []


def test_a_dead_process_fails_its_case(tmp_path, monkeypatch):
    write_case(tmp_path / "scans")
    monkeypatch.setattr(module, "run_in_processes", lambda f, jobs, w: ((j, None) for j in jobs))
    with pytest.raises(FailedCasesError, match=r"volume-0.nii: its process died"):
        module.preprocess_data(scan_config(tmp_path))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["DATA_PREPARATION.SCANS_VAL_DATA_PATH=absent"],
            r"SCANS_VAL_DATA_PATH: folder not found: .*absent",
        ),
        (["DATA_PREPARATION.SCANS_TRAIN_DATA_PATH=null"], "both are null"),
        (["DATASET.TRAIN.IMAGES_PATH=[a.png]"], "DATASET.TRAIN.IMAGES_PATH: found .*into a folder"),
        (["DATASET.TRAIN.MASK_PATH=null"], "DATASET.TRAIN.MASK_PATH: found None"),
        (["DATASET.TRAIN.MASK_PATH=data/train/images"], "IMAGES_PATH and DATASET.TRAIN.MASK_PATH"),
        (
            [
                "DATA_PREPARATION.SCANS_VAL_DATA_PATH=scans",
                "DATASET.VAL.IMAGES_PATH=data/train/val",
            ],
            "the folder above DATASET.TRAIN.IMAGES_PATH and the folder above DATASET.VAL",
        ),
    ],
)
def test_unsuitable_folders_are_refused_before_any_work(tmp_path, overrides, message):
    write_case(tmp_path / "scans")
    with pytest.raises(UserError, match=message):
        prepare(tmp_path, *overrides)
    assert [path.name for path in tmp_path.iterdir()] == ["scans"]


def test_an_unknown_cases_file_is_refused(tmp_path):
    write_case(tmp_path / "scans")
    (tmp_path / "data/train").mkdir(parents=True)
    (tmp_path / "data/train/cases.json").write_text('{"format": 99, "cases": {}}')
    with pytest.raises(UserError, match="cases.json: not of format 1"):
        prepare(tmp_path)

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from data_preparation.verify_data import verify_data
from tests.conftest import SIZE
from utils.errors import UserError
from utils.images import encode_png, to_class_ids
from utils.log import logger

PROJECT = Path(__file__).resolve().parent.parent
MASK = "data/train/mask/mask_28_0.png"
IMAGE = "data/train/images/image_28_0.png"


def write_mask(path: Path, *values: int, height: int = SIZE, width: int = SIZE) -> None:
    """A mask that is 0 but for its first pixels."""
    mask = np.zeros((height, width), np.uint8)
    mask[0, : len(values)] = values
    path.write_bytes(encode_png(mask))


# The label rule


@pytest.mark.parametrize(
    ("mask", "classes", "normalize_value", "ids"),
    [
        ([0, 1], 1, None, [0, 1]),
        ([0, 1], 2, None, [0, 1]),
        ([0, 1, 2], 3, None, [0, 1, 2]),
        ([0, 255], 256, None, [0, 255]),
        ([0, 255], 1, 255, [0, 1]),
        ([0, 127, 254], 3, 127, [0, 1, 2]),
        ([0, 1], 2, 1, [0, 1]),
        ([0, 0], 2, 65535, [0, 0]),
        ([], 2, None, []),
    ],
)
def test_mask_values_become_class_ids(mask, classes, normalize_value, ids):
    result = to_class_ids(np.array(mask, np.uint8), classes, normalize_value, Path("m.png"))
    assert result.dtype == np.uint8
    assert result.tolist() == ids


def test_masks_of_16_bits_become_class_ids():
    assert to_class_ids(np.uint16([0, 65535]), 2, 65535, Path("m.png")).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("mask", "classes", "normalize_value", "message"),
    [
        ([0, 2], 1, None, "m.png: found class ids 2; OUTPUT.CLASSES=1 takes 0 to 1"),
        ([3, 4, 0], 3, None, "m.png: found class ids 3, 4; OUTPUT.CLASSES=3 takes 0 to 2"),
        ([0, 255], 2, None, "takes 0 to 1; PREPROCESS_DATA.NORMALIZE_MASK.VALUE=True"),
        ([0, 128, 255], 2, 255, "m.png: found values 128; .*NORMALIZE_VALUE=255 does not divide"),
        ([0, 254], 2, 127, "found class ids 2; OUTPUT.CLASSES=2"),
        ([*range(9)], 2, None, "found class ids 2, 3, 4, 5, 6, …; "),
    ],
)
def test_other_mask_values_are_refused(mask, classes, normalize_value, message):
    with pytest.raises(UserError, match=message):
        to_class_ids(np.array(mask, np.uint8), classes, normalize_value, Path("m.png"))


# The check of a data set


def test_good_data_passes_and_is_summed_up(slices, make_cfg, capsys):
    # Three slices of case 28, the only one with foreground: 64 of 3 * 1024 px
    for split, case in (("train", "28"), ("val", "0")):
        for folder in ("images", "mask"):
            for path in (slices / "data" / split / folder).iterdir():
                path.unlink()
        for index in range(3):
            mask = np.zeros((SIZE, SIZE), np.uint8)
            mask[:8, :8] = index == 1
            name = f"{case}_{index}.png"
            (slices / "data" / split / "mask" / f"mask_{name}").write_bytes(encode_png(mask))
            image = mask + np.uint8(split == "val")
            (slices / "data" / split / "images" / f"image_{name}").write_bytes(encode_png(image))

    verify_data(make_cfg(VERBOSE=1))

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    numbers = [[cell for cell in row if cell != "│"] for row in rows]
    for split in ("TRAIN", "VAL"):
        assert [split, "1", "3", "0", "0.9792", "1.0000"] in numbers
        assert [split, "1", "3", "1", "0.0208", "0.3333"] in numbers


def test_quiet_runs_print_nothing(slices, make_cfg, capsys):
    verify_data(make_cfg())
    assert capsys.readouterr().out == ""


def _damaged_image(root):
    (root / IMAGE).write_bytes(b"no image")


def _damaged_mask(root):
    content = (root / MASK).read_bytes()
    (root / MASK).write_bytes(content[:40])


def _mask_of_255(root):
    write_mask(root / MASK, 255)


def _unknown_class(root):
    write_mask(root / MASK, 2)


def _mask_of_another_size(root):
    write_mask(root / MASK, height=SIZE, width=SIZE - 1)


def _both_of_another_size(root):
    write_mask(root / MASK, height=48)
    write_mask(root / IMAGE, height=48)


def _no_mask(root):
    (root / MASK).unlink()


def _no_image(root):
    (root / IMAGE).unlink()


FAULTS = [
    (_damaged_image, "image_28_0.png: cannot be decoded"),
    (_damaged_mask, "mask_28_0.png: cannot be decoded"),
    (_mask_of_255, "mask_28_0.png: found class ids 255; .*PREPROCESS_DATA.NORMALIZE_MASK"),
    (_unknown_class, "mask_28_0.png: found class ids 2; OUTPUT.CLASSES=2 takes 0 to 1"),
    (_mask_of_another_size, "image_28_0.png: found 32x32 px, but its mask has 32x31"),
    (_both_of_another_size, "image_28_0.png: found 48x32 px; .* is 32x32; .*RESIZE.VALUE=True"),
    (_no_mask, "image_28_0.png: no mask named mask_28_0"),
    (_no_image, "mask_28_0.png: no image belongs to this mask"),
]


@pytest.mark.parametrize(("spoil", "message"), FAULTS)
def test_faults_are_named(slices, make_cfg, spoil, message):
    spoil(slices)
    with pytest.raises(UserError, match=message):
        verify_data(make_cfg())


def test_all_problems_are_listed_at_once(slices, make_cfg):
    write_mask(slices / MASK, 255)
    write_mask(slices / "data/train/mask/mask_29_1.png", 7)
    (slices / "data/train/images/image_29_2.png").write_bytes(b"")
    (slices / "data/val/mask/mask_1_3.png").unlink()

    with pytest.raises(UserError) as error:
        verify_data(make_cfg())

    message = str(error.value)
    assert message.startswith("The data has problems (4):")
    for name in ("mask_28_0", "mask_29_1", "image_29_2", "mask_1_3"):
        assert name in message


def test_slices_of_other_sizes_pass_where_they_are_resized(slices, make_cfg):
    _both_of_another_size(slices)
    verify_data(make_cfg(PREPROCESS_DATA={"RESIZE": {"VALUE": True}}))


def test_masks_of_255_pass_where_they_are_normalised(slices, make_cfg):
    for path in (slices / "data").glob("*/mask/*.png"):
        write_mask(path, 255)
    verify_data(make_cfg(PREPROCESS_DATA={"NORMALIZE_MASK": {"VALUE": True}}))


@pytest.mark.parametrize(("value", "warns"), [(0, True), (1, False), (255, False)])
def test_masks_without_foreground_are_warned_of(slices, make_cfg, monkeypatch, value, warns):
    warnings = []
    monkeypatch.setattr(logger, "warning", warnings.append)
    for path in (slices / "data/val/mask").glob("*.png"):
        write_mask(path, value)
    with nullcontext() if value < 2 else pytest.raises(UserError, match="found class ids 255"):
        verify_data(make_cfg())
    assert len(warnings) == warns
    assert all("DATASET.VAL.MASK_PATH: no mask has any foreground" in text for text in warnings)


def test_masks_are_needed(slices, make_cfg):
    with pytest.raises(UserError, match="DATASET.VAL.MASK_PATH: found null; VAL needs masks"):
        verify_data(make_cfg(DATASET={"VAL": {"MASK_PATH": None}}))


def test_only_the_splits_asked_for_are_checked(slices, make_cfg):
    write_mask(slices / MASK, 255)
    verify_data(make_cfg(), splits=["VAL"])


def test_missing_folders_are_named_for_both_splits(tmp_path, make_cfg):
    with pytest.raises(UserError) as error:
        verify_data(make_cfg())
    assert "DATASET.TRAIN.IMAGES_PATH: folder not found" in str(error.value)
    assert "DATASET.VAL.IMAGES_PATH: folder not found" in str(error.value)


def test_a_case_in_both_splits_is_refused_unless_permitted(slices, make_cfg, monkeypatch, caplog):
    for kind in ("image", "mask"):
        folder = "images" if kind == "image" else "mask"
        (slices / "data/val" / folder / f"{kind}_0_0.png").rename(
            slices / "data/val" / folder / f"{kind}_28_99.png"
        )
    with pytest.raises(UserError, match="share 1 cases: 28; DATASET.ALLOW_SHARED_CASES=True"):
        verify_data(make_cfg())

    monkeypatch.setattr(logger, "propagate", True)
    verify_data(make_cfg(DATASET={"ALLOW_SHARED_CASES": True}))
    assert "TRAIN and VAL share 1 cases: 28" in caplog.text


def test_an_image_in_both_splits_under_two_names_is_refused(slices, make_cfg):
    data = slices / "data"
    for number in (1, 2):
        copy = (data / f"train/images/image_29_{number}.png").read_bytes()
        (data / f"val/images/image_1_{number}.png").write_bytes(copy)
    blank = encode_png(np.zeros((SIZE, SIZE, 3), np.uint8))  # these tell nothing
    for name in ("train/images/image_28_0.png", "val/images/image_0_0.png"):
        (data / name).write_bytes(blank)
    with pytest.raises(UserError) as error:
        verify_data(make_cfg())
    assert "problems (1)" in str(error.value)
    assert "case 29 in TRAIN and case 1 in VAL have 2 identical slices: image_29_1" in str(
        error.value
    )


def test_the_command_exits_with_2_and_names_the_file(slices):
    write_mask(slices / MASK, 255)
    sizes = [f"INPUT.HEIGHT={SIZE}", f"INPUT.WIDTH={SIZE}"]
    command = [sys.executable, str(PROJECT / "data_preparation/verify_data.py"), *sizes]
    result = subprocess.run(command, cwd=slices, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "mask_28_0.png: found class ids 255" in result.stderr
    assert "Traceback" not in result.stderr

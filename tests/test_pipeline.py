"""The commands together: prepare, train, evaluate, predict, and what they refuse."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from evaluate import evaluate
from predict import predict
from tests.conftest import LEARNING, SIZE
from train import train
from utils.errors import UserError
from utils.images import encode_png, read_mask

ROOT = Path(__file__).resolve().parents[1]


def run(cwd: Path, script: str, *overrides: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / script), *overrides]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_training_leaves_weights_logs_and_a_result(trained):
    folder, _, result = trained
    checkpoint = folder / "checkpoint"
    card = json.loads((checkpoint / "model_unet3plus_deepsup_cgm.json").read_text())
    assert card["epoch"] == result["best"]["epoch"]
    assert card["val_dice_coef"] > 0.5
    assert card["val_dice_coef"] == max(result["history"]["val_dice_coef"])
    rows = list(csv.DictReader((checkpoint / "training_logs_unet3plus_deepsup_cgm.csv").open()))
    assert [float(row["val_dice_coef"]) for row in rows] == result["history"]["val_dice_coef"]
    assert list((checkpoint / "tb_logs").rglob("events.*"))
    assert json.loads((folder / "results" / "train.json").read_text()) == result
    names = {"loss", "dice_coef", "focal", "ms_ssim", "iou", "presence_loss", "d1_loss", "e5_loss"}
    assert names <= set(result["history"])
    assert result["timing"]["counted_batches"] == 8 * 3 - 2


def test_evaluation_agrees_with_training_whatever_the_batch_size(trained, capsys):
    folder, make, result = trained
    for batch_size in (1, 4, 16):
        scores = evaluate(make(HYPER_PARAMETERS={"BATCH_SIZE": batch_size}))
        slices = scores["slices"]
        assert slices["slices"] == 9
        assert slices["dice_pooled_mean"] == pytest.approx(
            result["best"]["val_dice_coef"], abs=1e-5
        )
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last == f"Validation dice coefficient: {slices['dice_pooled_mean']:.5f}"
    written = json.loads((folder / "results" / "summary.json").read_text())
    assert set(written["slices"]["per_case"]) == {"0", "1"}
    assert written["slices"]["mean_slice_dice_of_empty_prediction"] == pytest.approx(2 / 9)
    assert written["scans"] is None
    rows = list(csv.DictReader((folder / "results" / "cases.csv").open()))
    assert [row["case"] for row in rows] == ["0", "1"]
    assert not (folder / "results" / "report.html").exists()


def test_pictures_for_folders_and_lists_with_and_without_masks(trained):
    folder, make, _ = trained
    written = predict(make())
    assert len(written) == 2 * 9
    three_wide = cv2.imread(str(written[1])).shape
    images = [str(folder / "data" / "val" / "images" / f"image_1_{i}.png") for i in (2, 0)]
    written = predict(make(DATASET={"VAL": {"IMAGES_PATH": images, "MASK_PATH": None}}))
    assert [f"{path.parent.name}/{path.name}" for path in written] == [
        "masks/mask_1_2.png", "pictures/image_1_2.png",
        "masks/mask_1_0.png", "pictures/image_1_0.png",
    ]  # fmt: skip
    two_wide = cv2.imread(str(written[1])).shape
    assert three_wide[0] == two_wide[0]
    assert three_wide[1] - two_wide[1] == 256 // SIZE * SIZE + 4


def test_predicted_masks_of_slices_are_class_ids_at_the_size_of_the_file(trained, tmp_path):
    _, make, _ = trained
    path = tmp_path / "photo.png"
    image = np.full((48, 40, 3), 30, np.uint8)
    image[12:36, 10:30] = 180
    path.write_bytes(encode_png(image))
    for size in ((48, 40), (96, 80)):
        cv2.imwrite(str(path), cv2.resize(image, size[::-1], interpolation=cv2.INTER_NEAREST))
        mask_path, _ = predict(
            make(
                DATASET={"VAL": {"IMAGES_PATH": str(path), "MASK_PATH": None}},
                PREPROCESS_DATA={"RESIZE": {"VALUE": True}},
            )
        )
        mask = read_mask(mask_path)
        assert mask.shape == size
        assert set(np.unique(mask)) <= {0, 1}


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (
            evaluate,
            {"MODEL": {"WEIGHTS_FILE_NAME": "nowhere"}},
            "no weights at .*nowhere.weights.h5",
        ),
        (
            predict,
            {"MODEL": {"WEIGHTS_FILE_NAME": "nowhere"}},
            "no weights at .*nowhere.weights.h5",
        ),
        (
            evaluate,
            {"MODEL": {"TYPE": "unet3plus", "WEIGHTS_FILE_NAME": "model_unet3plus_deepsup_cgm"}},
            "MODEL.TYPE: found 'unet3plus'; the weights need 'unet3plus_deepsup_cgm'",
        ),
        (evaluate, {"DATASET": {"VAL": {"MASK_PATH": None}}}, "DATASET.VAL.MASK_PATH: found null"),
        (
            train,
            {"DATASET": {"TRAIN": {"IMAGES_PATH": "nothing"}}},
            "TRAIN.IMAGES_PATH: folder not",
        ),
        (train, {"HYPER_PARAMETERS": {"BATCH_SIZE": 15}}, "only 14 slices"),
    ],
)
def test_mistakes_are_refused_and_nothing_is_lost(trained, task, changes, message):
    folder, make, _ = trained
    before = {path: path.stat().st_mtime_ns for path in (folder / "checkpoint").glob("*.*")}
    with pytest.raises(UserError, match=message):
        task(make(**changes))
    assert {path: path.stat().st_mtime_ns for path in (folder / "checkpoint").glob("*.*")} == before


def test_a_bad_mask_stops_training_before_it_starts(trained, tmp_path):
    folder, make, _ = trained
    shutil.copytree(folder / "data", tmp_path / "data")
    path = tmp_path / "data" / "train" / "mask" / "mask_28_3.png"
    cv2.imwrite(str(path), cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) * 255)
    with pytest.raises(UserError, match="mask_28_3.png.*255.*NORMALIZE_MASK"):
        train(make(WORK_DIR=str(tmp_path)))
    assert not (tmp_path / "checkpoint").exists()


def test_the_same_command_gives_the_same_numbers(trained, tmp_path):
    folder, make, result = trained
    shutil.copytree(folder / "data", tmp_path / "data")
    again = train(make(WORK_DIR=str(tmp_path), HYPER_PARAMETERS=LEARNING))
    assert again["history"] == result["history"]
    log = Path("checkpoint") / "training_logs_unet3plus_deepsup_cgm.csv"
    assert (tmp_path / log).read_bytes() == (folder / log).read_bytes()


def test_mistakes_on_the_command_line_end_with_exit_code_2(trained):
    folder, _, _ = trained
    for script in ("train.py", "evaluate.py", "predict.py"):
        done = run(
            folder, script, "MODEL.TYPE=unet3plus_deepsup_cgm", "DATASET.VAL.IMAGES_PATH=nothing"
        )
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "DATASET.VAL.IMAGES_PATH: folder not found" in done.stderr

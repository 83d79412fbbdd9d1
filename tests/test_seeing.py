"""What a run shows: curves, pictures, facts, and the next command."""

import csv
import json
import sys

import cv2
import numpy as np
import pytest

from callbacks.prediction_images import choose_slices
from tests.conftest import SIZE
from utils.cli import same_command
from utils.slice_files import list_split


def test_slices_with_most_foreground_are_chosen_over_all_cases(slices, make_cfg):
    pairs = list_split(make_cfg(), "VAL")  # cases 0 and 1, of 5 and 4 slices

    def read(pair):
        mask = cv2.imread(str(pair.mask), cv2.IMREAD_UNCHANGED)
        return np.zeros((SIZE, SIZE, 3), np.float32), mask

    sizes = {pair.image.stem: np.count_nonzero(read(pair)[1]) for pair in pairs}
    ranked = {
        case: sorted((n for n in sizes if f"_{case}_" in n), key=sizes.get, reverse=True)
        for case in "01"
    }
    for count, expected in (
        (1, ranked["1"][:1]), (2, [ranked["0"][0], ranked["1"][0]]),
        (3, [*ranked["0"][:2], ranked["1"][0]]), (99, [*ranked["0"], *ranked["1"]]),
    ):  # fmt: skip
        assert [shown.name for shown in choose_slices(pairs, count, read)] == expected


def test_the_next_command_has_the_overrides_that_matter(monkeypatch):
    arguments = ["+experiment=phantom", "++MODEL.TYPE=unet3plus", "++RESUME=True", "--multirun",
                 "++MODEL.FILTERS=[4,4,8,8,8]"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    assert same_command("evaluate.py", without=("RESUME",)) == (
        "python evaluate.py +experiment=phantom MODEL.TYPE=unet3plus 'MODEL.FILTERS=[4,4,8,8,8]'"
    )


def events(folder) -> dict[str, list]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    return {tag: accumulator.Tensors(tag) for tag in accumulator.Tags()["tensors"]}


def test_a_run_logs_every_head_the_rate_and_pictures(trained):
    folder, _, result = trained
    logs = folder / "checkpoint" / "tb_logs"
    terms = ("loss", "d1_loss", "e5_loss", "presence_loss", "focal", "ms_ssim", "iou", "dice_coef")
    assert {f"epoch_{name}" for name in (*terms, "learning_rate")} <= set(events(logs / "train"))
    assert {f"epoch_{name}" for name in terms} <= set(events(logs / "validation"))
    pictures = events(logs / "images")
    assert len(pictures) == 3
    for tag, found in pictures.items():
        assert tag.startswith("image_")
        assert [event.step for event in found] == list(range(result["epochs"]))
        width, height, png, *_ = found[0].tensor_proto.string_val
        image = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)
        assert image.shape == (int(height), int(width), 3)
    (log,) = (folder / "checkpoint").glob("*.csv")
    rates = [float(row["learning_rate"]) for row in csv.DictReader(log.open())]
    assert rates == pytest.approx([1e-2] * result["epochs"])
    curves = cv2.imread(str(folder / "results" / "curves.png"))
    assert curves.std() > 5
    history = json.loads((folder / "results" / "train.json").read_text())["history"]
    assert history["learning_rate"] == rates

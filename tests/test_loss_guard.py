"""Runs whose loss is no number stop with one message; what was kept stays."""

import logging

import numpy as np
import pytest

import train
from callbacks.loss_guard import LossGuard
from data_generators.data_generator import get_data_generator
from models.model import loss_of_guessing, prepare_model
from utils.errors import UserError
from utils.runtime import setup_runtime

NAN = float("nan")


class Trained:
    """Stands for the model of a callback."""

    def __init__(self, scale: float | None = None):
        self.optimizer = type("Optimizer", (), {} if scale is None else {"dynamic_scale": scale})


def run(means: list[float], guessing: float = 2.0, epoch: int = 1) -> LossGuard:
    """A guard that has seen batches with these running means of the loss."""
    guard = LossGuard(guessing, lambda epoch, step: [f"image_{epoch}_{step}.png"])
    guard.set_model(Trained())
    guard.on_epoch_begin(epoch)
    for batch, mean in enumerate(means):
        guard.on_train_batch_end(batch, {"loss": mean})
    return guard


@pytest.mark.parametrize(
    ("means", "parts"),
    [
        (
            [2.0, 1.0, NAN],
            ["is nan in step 3 of epoch 2", "image_1_2.png", "before: image_1_1.png"],
        ),
        ([float("inf")], ["is inf in step 1 of epoch 2. Its slices: image_1_0.png. Lower"]),
        ([1.0, 101.0], ["is 201 in step 2 of epoch 2", "CLIP_NORM=1", "RESUME=True goes on"]),
    ],
)
def test_a_loss_that_is_none_stops_the_run(means, parts):
    with pytest.raises(UserError) as error:
        run(means)
    for part in parts:
        assert part in str(error.value)


def test_a_loss_may_rise_and_the_mean_starts_anew_with_every_epoch():
    guard = run([1.0, 100.0, 70.0])  # single losses of 1, 199 and 10
    guard.on_epoch_begin(2)
    guard.on_train_batch_end(0, {"loss": 199.0})
    guard.on_epoch_end(2, {"val_loss": 5.0})


@pytest.mark.parametrize(
    ("first", "warns"), [(0.19, True), (0.21, False), (19.0, False), (21.0, True)]
)
def test_an_odd_first_loss_is_warned_of(caplog, monkeypatch, first, warns):
    monkeypatch.setattr(logging.getLogger("unet3plus"), "propagate", True)
    run([first], guessing=2.0, epoch=0)
    assert ("a network that guesses has 2" in caplog.text) is warns
    caplog.clear()
    run([first], guessing=2.0, epoch=1)
    assert not caplog.text


def test_validation_and_float16_are_looked_at_too():
    guard = run([1.0], epoch=0)
    with pytest.raises(UserError, match="nan in the validation.*nothing was kept"):
        guard.on_epoch_end(0, {"val_loss": NAN})
    guard.set_model(Trained(scale=1.0))
    guard.on_epoch_end(0, {"val_loss": 1.0})
    guard.set_model(Trained(scale=0.5))
    with pytest.raises(UserError, match="overflows in float16"):
        guard.on_epoch_end(0, {"val_loss": 1.0})


@pytest.mark.parametrize(
    ("variant", "head_weights", "heads"),
    [("unet3plus", [2, 0, 0, 0, 0], 2), ("unet3plus_deepsup_cgm", [1, 1, 1, 1, 1], 5)],
)
def test_the_loss_of_guessing(make_cfg, variant, head_weights, heads):
    terms = {"MS_SSIM": {"ENABLED": False}, "IOU": {"ENABLED": False}}
    cfg = make_cfg(
        MODEL={"TYPE": variant}, LOSS={**terms, "DEEP_SUPERVISION_WEIGHTS": head_weights}
    )
    masks = np.zeros((2, 32, 32), np.uint8)
    found = loss_of_guessing(prepare_model(cfg), cfg, masks)
    presence = np.log(2) if "cgm" in variant else 0
    assert found == pytest.approx(heads * 0.25 * np.log(2) + presence)


def test_the_slices_of_a_step_are_those_that_are_read(slices, make_cfg):
    cfg = make_cfg()
    split = get_data_generator(cfg, "TRAIN", setup_runtime(cfg))
    for epoch, step in ((0, 0), (1, 2)):
        split.start_epoch(epoch)
        assert split.pairs_of_step(epoch, step) == split.dataset.batch_pairs(step)


def test_a_run_that_diverges_keeps_what_it_had(slices, make_cfg):
    quiet = {"TENSORBOARD": {"IMAGES": 0}}
    train.train(make_cfg(HYPER_PARAMETERS={"EPOCHS": 1}, CALLBACKS=quiet))
    kept = [*(slices / "checkpoint").glob("model_unet3plus*.*")]
    kept += (slices / "checkpoint" / "model_unet3plus_state").iterdir()
    before = {path: path.read_bytes() for path in kept}
    changes = {"EPOCHS": 2, "LEARNING_RATE": 1e3}
    cfg = make_cfg(
        HYPER_PARAMETERS=changes, LOSS={"DEEP_SUPERVISION_WEIGHTS": [1e30] * 5}, RESUME=True,
        CALLBACKS=quiet,
    )  # fmt: skip
    with pytest.raises(UserError, match="The loss is .* of epoch 2") as error:
        train.train(cfg)
    assert "state of 1 epoch(s) are as they were" in str(error.value)
    assert {path: path.read_bytes() for path in kept} == before

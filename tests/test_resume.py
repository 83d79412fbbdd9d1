"""Interrupted runs go on as if nothing had happened, other runs are refused."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from callbacks.csv_log import keep_epochs
from callbacks.early_stopping import EarlyStopping
from callbacks.run_state import RunState, delete_states, list_states, read_states
from tests.conftest import merged, write_slices
from utils.errors import UserError

SCRIPT = Path(__file__).with_name("train_run.py")


def run(folder: Path, options: dict | None = None, **changes) -> subprocess.CompletedProcess:
    random = {
        "AUGMENTATION": {"ENABLED": True, "ELASTIC": {"AMPLITUDE": 2, "GRID": 8}},
        "DATASET": {"TRAIN": {"EMPTY_SLICES": 0.5}},
    }
    own = {"HYPER_PARAMETERS": {"EPOCHS": 4}, "WORK_DIR": str(folder)}
    changes = merged(random | own, changes)
    options = {"dropout": 0.5, **(options or {})}
    return subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(changes), json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
    )


def outcome(done: subprocess.CompletedProcess) -> dict:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def write_data(folder: Path) -> Path:
    write_slices(folder / "data" / "train", {"28": 8, "29": 6}, seed=1)
    write_slices(folder / "data" / "val", {"0": 5, "1": 4}, seed=2)
    return folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> dict:
    """Four epochs without interruption."""
    return outcome(run(write_data(tmp_path_factory.mktemp("straight"))))


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """The folder of a run that was killed in its third epoch."""
    folder = write_data(tmp_path_factory.mktemp("killed"))
    assert run(folder, {"kill": 2}).returncode == -9
    return folder


@pytest.fixture
def interrupted(killed, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(killed, tmp_path / "work"))


def test_a_killed_run_ends_where_it_would_have(interrupted, straight):
    state = interrupted / "checkpoint" / "model_unet3plus_state"
    assert list_states(state) == [2, 1]
    log = interrupted / "checkpoint" / "training_logs_unet3plus.csv"
    log.write_text(log.read_text() + "2,0.1,0.")  # killed while it logged

    resumed = outcome(run(interrupted, RESUME=True))
    expected, found = straight["result"], resumed["result"]
    assert found["resumed_after_epoch"] == 2
    assert found["best"]["epoch"] == expected["best"]["epoch"]
    for name, values in expected["history"].items():
        np.testing.assert_allclose(found["history"][name], values, rtol=1e-6, err_msg=name)
    for ours, theirs in zip(resumed["weights"], straight["weights"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    rows = list(csv.DictReader(log.open()))
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2, 3]
    assert [float(row["loss"]) for row in rows] == found["history"]["loss"]
    assert len(list((interrupted / "checkpoint" / "tb_logs" / "train").iterdir())) == 2
    assert found["timing"]["total_seconds"] > found["timing"]["warm_up_seconds"]

    again = run(interrupted, RESUME=True)
    assert "This run has finished after 4 epochs; more HYPER_PARAMETERS.EPOCHS" in again.stdout
    assert outcome(again)["result"]["epochs"] == 4
    assert list_states(state) == [4, 3]


def test_a_damaged_state_gives_way_to_the_one_before(interrupted, straight):
    newest = interrupted / "checkpoint" / "model_unet3plus_state" / "epoch_2.weights.h5"
    newest.write_bytes(newest.read_bytes()[:5000])
    done = run(interrupted, RESUME=True)
    assert "epoch_2.weights.h5: cannot be loaded" in done.stderr
    found = outcome(done)["result"]
    assert found["resumed_after_epoch"] == 1
    np.testing.assert_allclose(
        found["history"]["loss"], straight["result"]["history"]["loss"], rtol=1e-6
    )


def change_data(folder: Path) -> None:
    for kind in ("image", "mask"):
        parent = folder / "data" / "train" / (f"{kind}s" if kind == "image" else kind)
        (parent / f"{kind}_28_3.png").unlink()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"MODEL": {"FILTERS": [4, 4, 8, 8, 16]}}, "MODEL.FILTERS: found [4, 4, 8, 8, 16]"),
        ({"OUTPUT": {"CLASSES": 3}}, "OUTPUT.CLASSES: found 3; the interrupted run has 2"),
        ({"OPTIMIZATION": {"AMP": True}}, "OPTIMIZATION.AMP: found mixed_float16"),
        (
            {"HYPER_PARAMETERS": {"EMA": 0.9}},
            "HYPER_PARAMETERS.EMA: found 0.9; the interrupted run",
        ),
        (None, "DATASET.TRAIN: found 13 slices that are not the 14 of the interrupted run"),
    ],
)
def test_another_run_is_refused(interrupted, changes, message):
    if changes is None:
        change_data(interrupted)
    done = run(interrupted, RESUME=True, **(changes or {}))
    assert done.returncode != 0
    assert "RESUME: this is not the run that was interrupted" in done.stderr
    assert message in done.stderr
    assert list_states(interrupted / "checkpoint" / "model_unet3plus_state") == [2, 1]


def small_model(amp: bool) -> keras.Model:
    keras.utils.set_random_seed(3)
    policy = "mixed_float16" if amp else "float32"
    image = keras.Input((4,))
    x = keras.layers.Dropout(0.5, dtype=policy)(keras.layers.Dense(3, dtype=policy)(image))
    model = keras.Model(image, x)
    optimizer = keras.optimizers.Adam(0.1)
    if amp:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, dynamic_growth_steps=2)
    model.compile(optimizer, "mse", jit_compile=False)
    return model


X, Y = np.random.default_rng(0).random((2, 8, 4)).astype(np.float32)[:, :, :4]


@pytest.mark.parametrize("amp", [False, True])
def test_state_holds_optimizer_loss_scale_and_dropout(tmp_path, amp):
    def fit(model, state, first, epochs):
        options = {"batch_size": 4, "shuffle": False, "verbose": 0}
        model.fit(X, Y[:, :3], initial_epoch=first, epochs=epochs, callbacks=[state], **options)

    def variables(model):
        return [variable.numpy() for variable in model.weights + model.optimizer.variables]

    expected = small_model(amp)
    fit(expected, RunState(tmp_path / "a", {}, {}), 0, 5)
    fit(small_model(amp), RunState(tmp_path / "b", {}, {}), 0, 3)
    model, state = small_model(amp), RunState(tmp_path / "b", {}, {})
    model.optimizer.learning_rate = 0.2  # that of the new configuration stays
    state.restore(model, read_states(tmp_path / "b"))
    assert float(model.optimizer.learning_rate) == pytest.approx(0.2)
    model.optimizer.learning_rate = 0.1
    fit(model, state, state.epoch, 5)
    for ours, theirs in zip(variables(model), variables(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    assert len(state.history["loss"]) == 5
    assert list_states(tmp_path / "b") == [5, 4]


def test_states_of_other_formats_and_none_at_all(tmp_path):
    assert read_states(tmp_path) == []
    (tmp_path / "epoch_1.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="has format 99; this version reads 1"):
        read_states(tmp_path)
    (tmp_path / ".0123.epoch_2.weights.h5").write_text("half")
    delete_states(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_patience_goes_on_counting():
    class Trained:
        stop_training = False

    def epochs(stopping, scores, first):
        stopping.set_model(Trained())
        stopping.on_train_begin()
        for epoch, score in enumerate(scores, start=first):
            stopping.on_epoch_end(epoch, {"dice": score})
        return stopping.model.stop_training

    stopping = EarlyStopping("dice", patience=3)
    assert not epochs(stopping, [0.5, 0.4], first=0)
    assert stopping.state() == {"wait": 1, "best": 0.5}
    later = EarlyStopping("dice", patience=3)
    later.restore(json.loads(json.dumps(stopping.state())))
    assert not later.is_over
    assert epochs(later, [0.5, 0.3], first=2)
    last = EarlyStopping("dice", patience=3)
    last.restore(later.state())
    assert last.is_over


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epoch,loss\n0,1.5\n1,1.2\n2,1.1\n", "epoch,loss\n0,1.5\n1,1.2\n"),
        ("epoch,loss\n0,1.5\n1,1.2\n2", "epoch,loss\n0,1.5\n1,1.2\n"),
        ("epoch,loss\n2,9\n3,9\n0,1\n1,1\n2,1\n", "epoch,loss\n2,9\n3,9\n0,1\n1,1\n"),
        ("epoch,loss\n", "epoch,loss\n"),
    ],
)
def test_the_log_ends_where_the_state_does(tmp_path, text, expected):
    path = tmp_path / "log.csv"
    path.write_text(text)
    keep_epochs(path, 2)
    assert path.read_text() == expected

"""Learning rate, weight decay, clipping, accumulation and averaging, by hand-computed steps."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from callbacks.averaged_weights import AveragedWeights
from callbacks.run_state import RunState, read_states
from models.learning_rate import ScheduleSettings, learning_rate
from models.model import compile_model
from models.optimizer import OptimizerSettings, averages, build_optimizer, optimizer_settings
from tests.conftest import SIZE
from tests.train_run import small_network
from utils.errors import UserError
from utils.runtime import setup_runtime

HALF = 0.5**0.5


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        (("cosine", 2.0, 4), [2, 1 + HALF, 1, 1 - HALF, 0, 0]),
        (("cosine", 2.0, 4, 0, 0.5), [2, 1.5 + HALF / 2, 1.5, 1.5 - HALF / 2, 1]),
        (("cosine", 2.0, 7, 3), [0.5, 1, 1.5, 2, 1 + HALF, 1, 1 - HALF, 0]),
        (("polynomial", 2.0, 4, 0, 0.0, 2.0), [2, 1.125, 0.5, 0.125, 0, 0]),
        (("polynomial", 2.0, 5, 1, 0.5, 1.0), [1, 2, 1.75, 1.5, 1.25, 1, 1]),
        (("constant", 2.0, 5, 3), [0.5, 1, 1.5, 2, 2, 2]),
    ],
)
def test_learning_rate_of_every_step(settings, rates):
    schedule = learning_rate(ScheduleSettings(*settings))
    copy = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    for function in (schedule, copy):
        assert [float(function(step)) for step in range(len(rates))] == pytest.approx(rates)


def test_a_rate_that_never_changes_can_be_assigned():
    assert learning_rate(ScheduleSettings("constant", 5e-5, 0)) == 5e-5


def weights_after(settings: OptimizerSettings, gradients: list[list]) -> list[np.ndarray]:
    """Kernel (1, 1), bias (1,) and norm of a small model, all 1, after steps along `gradients`."""
    layers = [keras.layers.Dense(1, kernel_initializer="ones", bias_initializer="ones"),
              keras.layers.BatchNormalization(beta_initializer="ones")]  # fmt: skip
    model = keras.Sequential([keras.Input((1,)), *layers])
    optimizer = build_optimizer(settings, model)
    variables = model.trainable_variables
    for step in gradients:
        values = [np.full(v.shape, g, "float32") for v, g in zip(variables, step, strict=True)]
        optimizer.apply(values, variables)
    return [float(variable.numpy().item()) for variable in variables]


@pytest.mark.parametrize(
    ("settings", "gradients", "expected"),
    [
        ({}, [[1, 2, 0, 0]], [0.9, 0.8, 1, 1]),
        ({"momentum": 0.5}, [[1, 2, 0, 0]] * 2, [0.75, 0.5, 1, 1]),
        ({"momentum": 0.5, "nesterov": True}, [[1, 0, 0, 0]], [0.85, 1, 1, 1]),
        ({"weight_decay": 0.5}, [[0, 0, 0, 0]], [0.95, 1, 1, 1]),
        ({"clip_norm": 1.0}, [[3, 4, 0, 0]], [0.94, 0.92, 1, 1]),
        ({"clip_norm": 5.0}, [[3, 4, 0, 0]], [0.7, 0.6, 1, 1]),
        ({"accumulation": 2}, [[3, 4, 0, 0]], [1, 1, 1, 1]),
        ({"accumulation": 2}, [[3, 4, 0, 0], [1, 0, 0, 0]], [0.8, 0.8, 1, 1]),
        ({"accumulation": 2, "clip_norm": 1.0}, [[6, 0, 0, 0], [0, 8, 0, 0]], [0.94, 0.92, 1, 1]),
    ],
)
def test_steps_of_sgd(settings, gradients, expected):
    settings = OptimizerSettings(**{"type": "sgd", "rate": 0.1, "momentum": 0.0, **settings})
    assert weights_after(settings, gradients) == pytest.approx(expected)


def test_adamw_decays_kernels_only():
    plain = weights_after(OptimizerSettings("adam", 0.1), [[1, 1, 1, 1]])
    decayed = weights_after(OptimizerSettings("adamw", 0.1, weight_decay=0.5), [[1, 1, 1, 1]])
    assert plain == pytest.approx([0.9] * 4, abs=1e-5)
    assert decayed == pytest.approx([0.85, 0.9, 0.9, 0.9], abs=1e-5)


@pytest.mark.parametrize("key", ["GRADIENT_ACCUMULATION", "CLIP_NORM"])
def test_what_replicas_cannot_do_is_refused(make_cfg, key):
    cfg = make_cfg(HYPER_PARAMETERS={key: 2})
    assert optimizer_settings(cfg, 3, replicas=1)
    with pytest.raises(UserError, match=f"{key}: found 2.*does not work on 2 replicas"):
        optimizer_settings(cfg, 3, replicas=2)


def test_more_batches_per_step_than_the_run_has_are_refused(make_cfg):
    settings = {"GRADIENT_ACCUMULATION": 7, "EPOCHS": 2}
    cfg = make_cfg(HYPER_PARAMETERS=settings)
    assert optimizer_settings(cfg, 4).accumulation == 7
    with pytest.raises(UserError, match="GRADIENT_ACCUMULATION: found 7 batches.* run has 6"):
        optimizer_settings(cfg, 3)


def network(make_cfg, steps: int | None = None, amp: bool = False, **changes) -> keras.Model:
    cfg = make_cfg(HYPER_PARAMETERS={"EPOCHS": 4, **changes}, OPTIMIZATION={"AMP": amp})
    runtime = setup_runtime(cfg)
    model = small_network(dropout=0.0)
    compile_model(model, cfg, runtime, steps)
    return model


RNG = np.random.default_rng(0)
IMAGES = RNG.random((8, SIZE, SIZE, 3)).astype("float32")
MASKS = (IMAGES[..., 0] > 0.5).astype("uint8")


def fit(model: keras.Model, *callbacks, first: int = 0, epochs: int = 4) -> None:
    model.fit(
        IMAGES, MASKS, batch_size=2, shuffle=False, verbose=0, initial_epoch=first, epochs=epochs,
        validation_data=(IMAGES, MASKS), validation_batch_size=2, callbacks=list(callbacks),
    )  # fmt: skip


def values(variables) -> list[np.ndarray]:
    return [variable.numpy() for variable in variables]


def assert_equal(ours: list, theirs: list, **tolerance) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, **{"rtol": 1e-5, "atol": 1e-7, **tolerance})


class Recorder(keras.callbacks.Callback):
    """Takes down all weights after every batch, after validation, and at the end of an epoch."""

    def __init__(self, when: str):
        super().__init__()
        self.taken = []
        setattr(self, when, lambda *_, **__: self.taken.append(values(self.model.weights)))


@pytest.mark.parametrize(("accumulation", "amp"), [(1, False), (2, False), (1, True)])
def test_the_average_of_weights_and_statistics_is_validated(make_cfg, accumulation, amp):
    model = network(
        make_cfg, amp=amp, EMA=0.5, GRADIENT_ACCUMULATION=accumulation, LEARNING_RATE=0.1
    )
    pairs = averages(model)
    assert [variable.path for variable, _ in pairs] == [
        variable.path for variable in model.trainable_variables + model.non_trainable_weights
    ]
    batches, validated = Recorder("on_train_batch_end"), Recorder("on_test_end")
    before_state = Recorder("on_epoch_end")
    fit(model, batches, validated, AveragedWeights(pairs), before_state, epochs=1)
    decay = 0.5 ** (1 / accumulation)
    average = batches.taken[0]
    for index, weights in enumerate(batches.taken[1:], start=1):
        own = decay if index >= accumulation else 0  # Keras starts anew until the first step
        average = [own * a + (1 - own) * w for a, w in zip(average, weights, strict=True)]
    assert_equal(validated.taken[0], average)
    assert_equal(before_state.taken[0], batches.taken[-1], rtol=0, atol=0)
    changed = [not np.allclose(a, w) for a, w in zip(average, batches.taken[-1], strict=True)]
    assert all(changed)


SETTINGS = {
    "SCHEDULE": {"LEARNING_RATE_SCHEDULE": {"TYPE": "cosine", "WARMUP_EPOCHS": 0.5}},
    "POLYNOMIAL": {"LEARNING_RATE_SCHEDULE": {"TYPE": "polynomial"}, "OPTIMIZER": "sgd"},
    "ALL": {"LEARNING_RATE_SCHEDULE": {"TYPE": "cosine"}, "GRADIENT_ACCUMULATION": 3, "EMA": 0.9,
            "CLIP_NORM": 1.0, "OPTIMIZER": "adamw", "WEIGHT_DECAY": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_an_interrupted_run_ends_as_the_straight_one(make_cfg, tmp_path, name, amp):
    def start() -> tuple[keras.Model, AveragedWeights]:
        model = network(make_cfg, steps=4, amp=amp, LEARNING_RATE=1e-2, **SETTINGS[name])
        return model, AveragedWeights(averages(model))

    straight, averaging = start()
    fit(straight, averaging, RunState(tmp_path / "straight", {}, {}))
    interrupted, averaging = start()
    fit(interrupted, averaging, RunState(tmp_path / "state", {}, {}), epochs=2)
    resumed, averaging = start()
    state = RunState(tmp_path / "state", {}, {})
    state.restore(resumed, read_states(tmp_path / "state"))
    fit(resumed, averaging, state, first=state.epoch)
    assert_equal(
        values(resumed.weights + resumed.optimizer.variables),
        values(straight.weights + straight.optimizer.variables),
    )
    before = read_states(tmp_path / "straight")[0]["history"]
    assert state.history["val_loss"] == pytest.approx(before["val_loss"], rel=1e-5)


@pytest.fixture(scope="module")
def replicas() -> dict:
    """What optimizer_replicas.py prints."""
    script = Path(__file__).with_name("optimizer_replicas.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_schedule_decay_and_average_are_the_same_on_two_replicas(replicas):
    assert_equal(replicas["two"], replicas["one"], rtol=1e-4, atol=1e-5)


def test_an_overflow_on_any_replica_skips_the_step(replicas):
    overflown, applied = replicas["overflow"]["True"], replicas["overflow"]["False"]
    assert overflown == {"moved": 0.0, "scale": 2.0**14, "steps": 0}
    assert 0 < applied["moved"] < 1
    assert applied["steps"] == 1

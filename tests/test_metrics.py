"""The Dice coefficient against hand counts, and over batches, compilation and replicas."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from losses.metrics import DiceCoefficient
from utils.dice import dice_from_counts

ROOT = Path(__file__).parents[1]


def one_hot(*samples, classes=3):
    """Class ids, one list of pixels per sample, as (batch, 1, pixels, classes)."""
    return np.eye(classes, dtype=np.float32)[np.array(samples)][:, None]


def one_map(*samples):
    return np.array(samples, np.float32)[:, None, :, None]


def dice(y_true, y_pred, classes=None, **options):
    metric = DiceCoefficient(classes or y_true.shape[-1])
    return float(metric(y_true, y_pred, **options))


@pytest.mark.parametrize(
    ("true", "predicted", "expected"),
    [
        ([2, 2, 2, 2], [2, 2, 2, 2], 1.0),  # class numbers are no weights
        ([1, 1, 1, 1], [2, 2, 2, 2], 0.0),  # nor is a wrong class worth anything
        ([0, 1, 1, 2], [0, 1, 2, 2], (2 * 1 / 3 + 2 * 1 / 3) / 2),
        ([0, 1, 1, 1], [0, 1, 1, 0], 2 * 2 / 5),  # class 2 occurs nowhere: left out
        ([0, 1, 1, 0], [0, 1, 1, 2], (1 + 0) / 2),  # class 2 only predicted: 0
        ([0, 1, 1, 2], [0, 1, 1, 0], (1 + 0) / 2),  # class 2 only true: 0
        ([0, 0, 0, 0], [0, 0, 0, 0], 1.0),
    ],
)
def test_dice_of_classes(true, predicted, expected):
    assert dice(one_hot(true), one_hot(predicted)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("true", "predicted", "expected"),
    [
        ([1, 1, 0, 0], [0.9, 0.2, 0.8, 0.5], 2 * 1 / 4),  # 0.5 is not above the threshold
        ([0, 0, 0, 0], [0, 0, 0, 0.6], 0.0),
        ([0, 0, 0, 0], [0, 0, 0, 0.4], 1.0),
    ],
)
def test_dice_of_a_single_map(true, predicted, expected):
    assert dice(one_map(true), one_map(predicted)) == pytest.approx(expected)


def test_probabilities_count_by_the_largest():
    y_pred = np.float32([[[[0.3, 0.4, 0.3], [0.4, 0.4, 0.2]]]])  # classes 1 and, at a tie, 0
    assert dice(one_hot([1, 1]), y_pred) == pytest.approx(2 * 1 / 3)


def test_predicting_nothing_scores_nothing_although_most_slices_are_empty():
    y_true = one_hot(*[[0, 0]] * 8, *[[1, 1]] * 2, classes=2)
    assert dice(y_true, one_hot(*[[0, 0]] * 10, classes=2)) == 0


def random_batch(samples=7, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y_true = one_hot(*rng.integers(0, classes, (samples, 20)), classes=classes)
    return y_true, rng.random(y_true.shape, np.float32)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_result_does_not_depend_on_the_batches(batch_size, dtype):
    y_true, y_pred = (y.astype(dtype) for y in random_batch())
    metric = DiceCoefficient(classes=3)
    for start in range(0, len(y_true), batch_size):
        metric.update_state(*(y[start : start + batch_size] for y in (y_true, y_pred)))
    predicted = y_pred.argmax(-1)
    by_hand = [
        2 * np.sum((predicted == c) & (y_true[..., c] == 1))
        / (np.sum(predicted == c) + np.sum(y_true[..., c] == 1))
        for c in (1, 2)
    ]  # fmt: skip
    assert float(metric.result()) == pytest.approx(np.mean(by_hand), rel=1e-6)


def test_reset_forgets():
    metric = DiceCoefficient(classes=3)
    metric.update_state(*random_batch())
    metric.reset_state()
    assert float(metric(one_hot([1, 2]), one_hot([1, 2]))) == 1


def test_samples_of_weight_zero_are_left_out():
    y_true, y_pred = random_batch()
    weights = np.float32([1, 1, 1, 1, 1, 0, 0])
    assert dice(y_true, y_pred, sample_weight=weights) == dice(y_true[:5], y_pred[:5])


def test_counts_beyond_the_integers_of_float32_are_exact():
    metric = DiceCoefficient(classes=1)
    metric.intersection.assign([2.0**24])
    metric.cardinality.assign([2.0**25])
    metric.update_state(one_map([1]), one_map([1]))
    assert metric.intersection.numpy() == [2**24 + 1]
    assert metric.cardinality.numpy() == [2**25 + 2]


def test_serialisation():
    metric = DiceCoefficient(classes=4)
    copy = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert (copy.name, copy.classes, copy.dtype) == ("dice_coef", 4, "float32")


@pytest.mark.parametrize("jit_compile", [False, True])
def test_evaluate_reports_it(jit_compile):
    y_true, y_pred = random_batch()
    inputs = keras.Input(y_pred.shape[1:])
    model = keras.Model(inputs, keras.layers.Identity()(inputs))
    model.compile(loss="mse", metrics=[DiceCoefficient(classes=3)], jit_compile=jit_compile)
    logs = model.evaluate(y_pred, y_true, batch_size=3, verbose=0, return_dict=True)
    assert logs["dice_coef"] == pytest.approx(dice(y_true, y_pred), rel=1e-6)


TWO_REPLICAS = """
import utils, keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from losses.metrics import DiceCoefficient
from losses.unet_loss import SegmentationLoss

rng = np.random.default_rng(0)
x = rng.random((8, 16, 16, 3), np.float32)
y = np.eye(2, dtype=np.float32)[(x[..., 0] > 0.6).astype(int)]
results = []
for strategy in (
    tf.distribute.get_strategy(),
    tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()),
):
    with strategy.scope():
        keras.utils.set_random_seed(0)
        conv = keras.layers.Conv2D(2, 3, padding="same", activation="softmax")
        model = keras.Sequential([keras.Input((16, 16, 3)), conv])
        model.compile(
            keras.optimizers.SGD(0.1),
            SegmentationLoss(),
            metrics=[DiceCoefficient(classes=2)],
            jit_compile=False,
        )
    data = {"x": x, "y": y, "batch_size": 4, "verbose": 0}
    fitted = model.fit(**data, shuffle=False).history
    evaluated = model.evaluate(**data, return_dict=True)
    print(strategy.num_replicas_in_sync, fitted, evaluated)
    values = (*fitted.values(), *evaluated.values(), *model.get_weights())
    results.append(np.concatenate([np.ravel(value) for value in values]))
np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)
assert 0 < evaluated["dice_coef"] < 1
"""


def test_one_and_two_replicas_give_the_same_loss_score_and_weights():
    """In a process of its own, as logical devices must be set before TensorFlow starts."""
    process = subprocess.run(
        [sys.executable, "-c", TWO_REPLICAS], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr[-2000:]


@pytest.mark.parametrize(
    ("intersection", "cardinality", "expected"),
    [(80, 220, 160 / 220), (0, 7, 0.0), (5, 10, 1.0), (0, 0, None), (np.int64(3), 8, 0.75)],
)
def test_dice_from_counts(intersection, cardinality, expected):
    assert dice_from_counts(intersection, cardinality) == expected

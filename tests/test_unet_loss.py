"""The loss of a head: sum of its terms, switches, configuration, serialisation; presence loss."""

from math import log

import keras
import numpy as np
import pytest
import tensorflow as tf

from losses.loss import focal_loss, iou_loss, ms_ssim_loss
from losses.unet_loss import (
    LossSettings,
    SegmentationLoss,
    loss_settings,
    presence_loss,
    unet3p_hybrid_loss,
)
from utils.config import validate_config

_rng = np.random.default_rng(0)
Y_TRUE = np.eye(3, dtype=np.float32)[_rng.integers(0, 3, (3, 32, 48))]
Y_PRED = _rng.dirichlet(np.ones(3), (3, 32, 48)).astype(np.float32)


def gradient_of(loss, y_true, y_pred):
    y_pred = tf.convert_to_tensor(y_pred)
    with tf.GradientTape() as tape:
        tape.watch(y_pred)
        value = loss(tf.convert_to_tensor(y_true), y_pred)
    return tape.gradient(value, y_pred)


def test_hybrid_loss_is_the_sum_of_its_terms_per_sample():
    terms = (focal_loss, ms_ssim_loss, iou_loss)
    expected = sum(term(Y_TRUE, Y_PRED).numpy() for term in terms)
    np.testing.assert_allclose(unet3p_hybrid_loss(Y_TRUE, Y_PRED), expected, rtol=1e-6)
    loss = SegmentationLoss()
    assert loss.name == "unet3p_hybrid_loss"
    np.testing.assert_allclose(loss(Y_TRUE, Y_PRED), expected.mean(), rtol=1e-6)
    padded = loss(Y_TRUE, Y_PRED, sample_weight=np.float32([1, 1, 0]))
    np.testing.assert_allclose(padded, (expected[0] + expected[1]) / 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ["focal", "ms_ssim", "iou"]),
        ({"focal_enabled": False}, ["ms_ssim", "iou"]),
        ({"ms_ssim_enabled": False, "iou_enabled": False}, ["focal"]),
        ({"type": "reference"}, ["focal", "ssim", "iou"]),
        ({"type": "reference", "ms_ssim_enabled": False}, ["focal", "iou"]),
    ],
)
def test_terms_are_named_and_can_be_switched_off(settings, names):
    terms = LossSettings(**settings).terms()
    assert list(terms) == names
    expected = sum(term(Y_TRUE, Y_PRED).numpy() for term in terms.values())
    actual = SegmentationLoss(LossSettings(**settings)).call(Y_TRUE, Y_PRED)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "dice"}, "unet3p_hybrid.*received 'dice'"),
        (dict.fromkeys(("focal_enabled", "ms_ssim_enabled", "iou_enabled"), False), "at least one"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SegmentationLoss(LossSettings(**settings))


def test_settings_reach_the_terms_and_survive_serialisation():
    settings = LossSettings(
        focal_gamma=1.0, focal_alpha=0.3, iou_smooth=2.0, include_background=True
    )
    expected = (
        focal_loss(Y_TRUE, Y_PRED, gamma=1.0, alpha=0.3)
        + ms_ssim_loss(Y_TRUE, Y_PRED, include_background=True)
        + iou_loss(Y_TRUE, Y_PRED, smooth=2.0, include_background=True)
    )
    original = SegmentationLoss(settings, name="seg")
    copy = keras.losses.deserialize(keras.losses.serialize(original))
    assert (copy.settings, copy.name) == (settings, "seg")
    np.testing.assert_allclose(copy.call(Y_TRUE, Y_PRED), expected, rtol=1e-6)


def test_settings_come_from_the_configuration():
    assert loss_settings(validate_config({})) == LossSettings()
    cfg = validate_config(
        {
            "LOSS": {
                "TYPE": "reference",
                "FOCAL": {"ENABLED": False, "GAMMA": 1.5, "ALPHA": 0.25},
                "MS_SSIM": {"ENABLED": False},
                "IOU": {"SMOOTH": 3.0},
                "INCLUDE_BACKGROUND": True,
            }
        }
    )
    assert loss_settings(cfg) == LossSettings(
        type="reference",
        focal_enabled=False,
        focal_gamma=1.5,
        focal_alpha=0.25,
        ms_ssim_enabled=False,
        iou_smooth=3.0,
        include_background=True,
    )


@pytest.mark.parametrize("loss_type", ["unet3p_hybrid", "reference"])
def test_compiled_loss_and_gradient_equal_eager_ones(loss_type):
    loss = SegmentationLoss(LossSettings(type=loss_type)).call
    compile_ = tf.function(jit_compile=True)
    np.testing.assert_allclose(compile_(loss)(Y_TRUE, Y_PRED), loss(Y_TRUE, Y_PRED), rtol=1e-5)
    expected = gradient_of(loss, Y_TRUE, Y_PRED)
    actual = compile_(gradient_of)(loss, Y_TRUE, Y_PRED)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "expected"),
    [
        ([0, 1], [0.25, 0.5], (-log(0.75) - log(0.5)) / 2),
        ([1, 0], [0.5, 0.5], log(2)),
        ([1, 0], [1, 0], 0),
        ([1, 0], [0, 1], -log(1e-7)),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_presence_loss(y_true, y_pred, expected, dtype):
    y_true, y_pred = np.array([y_true], dtype), np.array([y_pred], dtype)
    loss = presence_loss(y_true, y_pred)
    assert loss.dtype == tf.float32
    assert loss.numpy() == pytest.approx([expected], rel=0.01, abs=1e-6)
    assert np.isfinite(gradient_of(presence_loss, y_true, y_pred)).all()


@pytest.mark.parametrize("formula", ["unet3p_hybrid", "reference"])
def test_gradients_are_the_same_to_the_last_bit_at_every_call(formula):
    loss = SegmentationLoss(LossSettings(type=formula))
    target = tf.constant(np.eye(2, dtype=np.float32)[_rng.integers(0, 2, (4, 64, 64))])
    logits = tf.constant(_rng.normal(size=(4, 64, 64, 2)).astype(np.float32))

    @tf.function
    def gradient(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(target, tf.nn.softmax(logits))
        return tape.gradient(value, logits)

    assert len({gradient(logits).numpy().tobytes() for _ in range(50)}) == 1

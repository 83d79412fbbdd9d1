"""The view for inference: fewer layers, the same probabilities."""

import itertools

import keras
import numpy as np
import pytest

from models.backbones import ENCODERS
from models.blocks import UnitSettings
from models.inference_view import fold_batch_norm
from models.model import inference_view
from models.resample_conv import METHODS
from models.unet3plus import VARIANTS, build_unet3plus
from tests.test_models import randomise

NARROW = (4, 6, 8, 10, 12)
SHAPE = (32, 48, 3)


def random_model(variant, backbone, method="exact_fast", shape=SHAPE):
    settings = UnitSettings(epsilon=0.02, resample=method)
    model = build_unet3plus(variant, backbone, shape, 2, NARROW, settings=settings)
    randomise(model, seed=3)
    return model


def random_image(seed=0):
    return np.random.default_rng(seed).random((2, *SHAPE)).astype(np.float32)


def test_folding_by_hand():
    image = keras.Input((4, 4, 1))
    x = keras.layers.Conv2D(1, 1, name="a_conv")(image)
    x = keras.layers.BatchNormalization(epsilon=1.0, name="a_bn")(x)
    model = keras.Model(image, x)
    model.get_layer("a_conv").set_weights([np.full((1, 1, 1, 1), 3.0), np.array([5.0])])
    gamma, beta, mean, variance = 4.0, 7.0, 1.0, 3.0  # σ = √(3 + 1) = 2
    model.get_layer("a_bn").set_weights([np.array([v]) for v in (gamma, beta, mean, variance)])
    kernel, bias = fold_batch_norm(model).get_weights()
    assert kernel.item() == 3 * 4 / 2
    assert bias.item() == (5 - 1) * 4 / 2 + 7


@pytest.mark.parametrize(
    ("variant", "backbone", "method"), list(itertools.product(VARIANTS, ENCODERS, METHODS))
)
def test_view_equals_the_main_head(variant, backbone, method):
    model = random_model(variant, backbone, method)
    if "cgm" in variant:
        model.get_layer("cgm_conv").bias.assign([-9, 9])  # an organ is present: the gate is open
    expected = np.array(model(random_image())["d1"])
    assert np.ptp(expected) > 0.01
    view = inference_view(model)
    actual = view.predict(random_image(), verbose=0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
    assert not any(isinstance(v, keras.layers.BatchNormalization) for v in view.layers)
    assert not any(v.name.startswith(("head2", "head3", "head4", "head5")) for v in view.layers)
    assert view.jit_compile is False


def test_gate_of_the_view_closes():
    model = random_model("unet3plus_deepsup_cgm", "vgg16")
    model.get_layer("cgm_conv").bias.assign([9, -9])
    view = inference_view(model)
    background = np.broadcast_to([1, 0], (2, 32, 48, 2))
    np.testing.assert_array_equal(view.predict(random_image(), verbose=0), background)


def test_view_holds_the_weights_of_the_time_it_was_made():
    model = random_model("unet3plus", "unet3plus")
    old = inference_view(model)
    before = np.array(model(random_image())["d1"])
    randomise(model, seed=4)
    after = np.array(model(random_image())["d1"])
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(old(random_image()), before, rtol=0, atol=1e-5)
    np.testing.assert_allclose(inference_view(model)(random_image()), after, rtol=0, atol=1e-5)


def test_view_of_unknown_size():
    model = random_model("unet3plus_deepsup", "vgg19", shape=(None, None, 3))
    expected = np.array(model(random_image())["d1"])
    np.testing.assert_allclose(inference_view(model)(random_image()), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_view_in_mixed_precision_keeps_float32_probabilities(jit):
    expected = np.array(random_model("unet3plus", "unet3plus")(random_image())["d1"])
    try:
        keras.config.set_dtype_policy("mixed_float16")
        view = inference_view(random_model("unet3plus", "unet3plus"), jit_compile=jit)
    finally:
        keras.config.set_dtype_policy("float32")
    actual = view.predict(random_image(), verbose=0)
    assert view.get_layer("dec1_conv").compute_dtype == "float16"
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=0, atol=0.03)

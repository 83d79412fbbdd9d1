"""Batch normalisation in one kernel: Keras's own numbers, everywhere it runs."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from models.batch_norm import FusedBatchNormalization

CLASSES = (FusedBatchNormalization, keras.layers.BatchNormalization)


def built(kind, channels, dtype="float32", **arguments):
    layer = kind(momentum=0.9, epsilon=1e-5, dtype=dtype, **arguments)
    layer.build((None, None, None, channels))
    rng = np.random.default_rng(channels)
    for weight in layer.weights:
        weight.assign(rng.uniform(0.5, 1.5, weight.shape))
    return layer


def everything(layer, shape, training, jit=False):
    """Output, gradients and moving statistics after one call, in float32."""
    rng = np.random.default_rng(sum(shape))
    x = tf.constant(rng.normal(3, 2, shape), layer.compute_dtype)
    gradient = tf.constant(rng.normal(size=shape), layer.compute_dtype)

    @tf.function(jit_compile=jit)
    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=training)
        weights = [variable.value for variable in layer.trainable_variables]
        return [y, *tape.gradient(y, [x, *weights], gradient)]

    values = [tf.cast(value, "float32").numpy() for value in run()]
    return [*values, *(variable.numpy() for variable in layer.non_trainable_variables)]


def assert_equal(kinds_values, tolerance):
    for fused, plain in zip(*kinds_values, strict=True):
        scale = max(np.abs(plain).max(), 1.0)
        np.testing.assert_allclose(fused, plain, rtol=0, atol=tolerance * scale)


def test_moving_statistics_by_hand():
    # Mean 2.5 and variance 1.25 of 1, 2, 3, 4 (divided by N, as in Keras, not by N - 1)
    layer = FusedBatchNormalization(momentum=0.75)
    x = np.float32([1, 2, 3, 4]).reshape(1, 2, 2, 1)
    y = layer(x, training=True)
    np.testing.assert_allclose(layer.moving_mean, [0.25 * 2.5], rtol=1e-6)
    np.testing.assert_allclose(layer.moving_variance, [0.75 * 1 + 0.25 * 1.25], rtol=1e-6)
    np.testing.assert_allclose(y, (x - 2.5) / np.sqrt(1.25 + 1e-3), rtol=1e-5)
    y = layer(x, training=False)
    np.testing.assert_allclose(y, (x - 0.625) / np.sqrt(1.0625 + 1e-3), rtol=1e-5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(1, 2, 1, 3), (1, 5, 3, 1), (3, 4, 7, 16)])
def test_equals_keras(shape, training):
    assert_equal([everything(built(k, shape[-1]), shape, training) for k in CLASSES], 1e-5)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("mixed_float16", 1e-3), ("mixed_bfloat16", 8e-3)]
)
def test_equals_keras_in_every_precision_with_and_without_xla(dtype, tolerance, jit):
    layers = [built(kind, 5, dtype) for kind in CLASSES]
    values = [everything(layer, (2, 4, 7, 5), training=True, jit=jit) for layer in layers]
    assert_equal(values, tolerance)
    assert_equal([v[-2:] for v in values], 1e-5)  # moving statistics are float32 in any case
    assert layers[0].dtype == "float32"
    assert layers[0].compute_dtype == layers[1].compute_dtype


@pytest.mark.parametrize("arguments", [{"center": False}, {"scale": False}])
def test_equals_keras_without_offset_or_scale(arguments):
    layers = [built(kind, 5, **arguments) for kind in CLASSES]
    assert_equal([everything(layer, (2, 4, 7, 5), training=True) for layer in layers], 1e-5)


def test_a_frozen_layer_uses_and_keeps_its_moving_statistics():
    layers = [built(kind, 5, trainable=False) for kind in CLASSES]
    before = [variable.numpy() for variable in layers[0].weights]
    assert_equal([everything(layer, (2, 4, 7, 5), training=True) for layer in layers], 1e-5)
    for variable, old in zip(layers[0].weights, before, strict=True):
        np.testing.assert_array_equal(variable, old)


UNKNOWN_TO_THE_KERNEL = [({"axis": 1}, (2, 3, 4, 5)), ({}, (6, 4))]
if "renorm" in inspect.signature(keras.layers.BatchNormalization).parameters:  # not in Keras 3.12
    UNKNOWN_TO_THE_KERNEL.append(({"renorm": True}, (2, 3, 4, 5)))


@pytest.mark.parametrize(("arguments", "shape"), UNKNOWN_TO_THE_KERNEL)
def test_what_the_kernel_cannot_do_is_left_to_keras(arguments, shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    fused, plain = (kind(**arguments) for kind in CLASSES)
    np.testing.assert_array_equal(fused(x, training=True), plain(x, training=True))
    np.testing.assert_array_equal(fused.moving_variance, plain.moving_variance)


def test_a_mask_is_honoured():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    mask = x[..., 0] > 0
    fused, plain = (kind() for kind in CLASSES)
    np.testing.assert_array_equal(
        fused(x, training=True, mask=mask), plain(x, training=True, mask=mask)
    )


def test_variables_and_configuration_are_those_of_keras():
    fused, plain = (built(kind, 5) for kind in CLASSES)
    assert [v.name for v in fused.weights] == [v.name for v in plain.weights]
    assert fused.get_config() | {"name": ""} == plain.get_config() | {"name": ""}
    assert FusedBatchNormalization.from_config(fused.get_config()).epsilon == 1e-5

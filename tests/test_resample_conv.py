"""Up-sampling with a 3x3 convolution: the fast form against the definition, everywhere it runs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from models.blocks import UnitSettings
from models.interpolation import banded_matmul, bilinear_matrix, tap_matrix
from models.resample_conv import METHODS, ResampleConv2D
from models.unet3plus import build_unet3plus

NARROW = (4, 6, 8, 10, 12)


def half(values):
    """Rounded to what float16 can hold, so that precision is lost in operators alone."""
    return values.astype(np.float16).astype(np.float32)


def both_forms(channels, filters, factor, convolve_first=False, dtype="float32"):
    """The two methods as layers with the same random weights."""
    rng = np.random.default_rng(filters)
    kernel = half(rng.normal(0, 1 / np.sqrt(9 * channels), (3, 3, channels, filters)))
    bias = half(rng.normal(size=filters))
    layers = {}
    for method in METHODS:
        layers[method] = ResampleConv2D(filters, factor, method, convolve_first, dtype=dtype)
        layers[method].build((None, None, None, channels))
        layers[method].set_weights([kernel, bias])
    return layers


def output_and_gradients(layer, x, gradient, jit=False):
    """The output, and the gradients of input, kernel and bias, in float32."""

    @tf.function(jit_compile=jit)
    def run(x, gradient):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        weights = [variable.value for variable in layer.trainable_variables]
        return [y, *tape.gradient(y, [x, *weights], tf.cast(gradient, y.dtype))]

    names = ("output", "of input", "of kernel", "of bias")
    values = [tf.cast(value, "float32").numpy() for value in run(x, gradient)]
    return dict(zip(names, values, strict=True))


def random_pair(shape, factor, filters):
    rng = np.random.default_rng(sum(shape))
    batch, height, width, _ = shape
    output = (batch, height * factor, width * factor, filters)
    return half(rng.normal(size=shape)), half(rng.normal(size=output))


def assert_close(actual, expected, tolerance=1e-5):
    for name, value in expected.items():
        scale = max(np.abs(value).max(), 1.0)
        assert value.shape == actual[name].shape, name
        np.testing.assert_allclose(
            actual[name], value, rtol=0, atol=tolerance * scale, err_msg=name
        )


def test_bilinear_weights_by_hand():
    expected = [[1, 0, 0], [0.75, 0.25, 0], [0.25, 0.75, 0], [0, 0.75, 0.25], [0, 0.25, 0.75]]
    np.testing.assert_array_equal(bilinear_matrix(3, 2), [*expected, [0, 0, 1]])
    np.testing.assert_array_equal(bilinear_matrix(1, 4), [[1], [1], [1], [1]])


def test_tap_weights_by_hand():
    # Two pixels a, b become a, (3a + b)/4, (a + 3b)/4, b; a tap sees one to the left, itself or one
    # to the right of them, and 0 outside. Columns: a through taps -1, 0, 1, then b.
    expected = [
        [0, 1, 0.75, 0, 0, 0.25],
        [1, 0.75, 0.25, 0, 0.25, 0.75],
        [0.75, 0.25, 0, 0.25, 0.75, 1],
        [0.25, 0, 0, 0.75, 1, 0],
    ]
    np.testing.assert_array_equal(tap_matrix(2, 2), expected)
    # The convolution first: the taps give (0, a), (a, b), (b, 0), then they are interpolated
    expected = [
        [0, 1, 0, 0, 0, 1],
        [0.25, 0.75, 0, 0, 0.25, 0.75],
        [0.75, 0.25, 0, 0, 0.75, 0.25],
        [1, 0, 0, 0, 1, 0],
    ]
    np.testing.assert_array_equal(tap_matrix(2, 2, convolve_first=True), expected)


@pytest.mark.parametrize("blocks", [1, 2, 3, 7])
def test_a_product_in_blocks_is_the_whole_product(blocks):
    matrix = bilinear_matrix(7, 2)
    x = np.arange(2 * 7 * 3, dtype=np.float32).reshape(2, 7, 3)
    np.testing.assert_array_equal(banded_matmul(matrix, x, blocks), matrix @ x)
    with tf.GradientTape() as tape:
        tape.watch(x := tf.constant(x))
        y = banded_matmul(matrix, x, blocks)
    upstream = np.arange(2 * 14 * 3, dtype=np.float32).reshape(2, 14, 3)
    np.testing.assert_array_equal(tape.gradient(y, x, upstream), matrix.T @ upstream)


@pytest.mark.parametrize("convolve_first", [False, True])
@pytest.mark.parametrize("factor", [1, 2, 4, 8, 16])
def test_direct_form_is_keras_layers_one_after_the_other(factor, convolve_first):
    layer = both_forms(3, 2, factor, convolve_first)["direct"]
    convolution = keras.layers.Conv2D(2, 3, padding="same")
    convolution.build((None, None, None, 3))
    convolution.set_weights(layer.get_weights())
    upsampling = keras.layers.UpSampling2D(factor, interpolation="bilinear")
    steps = (convolution, upsampling) if convolve_first else (upsampling, convolution)
    x, _ = random_pair((2, 3, 5, 3), factor, 2)
    np.testing.assert_allclose(layer(x), steps[1](steps[0](x)), rtol=0, atol=2e-6)


SHAPES = [((1, 1, 1, 1), 1), ((3, 5, 3, 7), 6), ((1, 2, 7, 20), 1), ((3, 6, 4, 1), 6),
          ((1, 41, 2, 2), 3), ((1, 2, 41, 2), 3)]  # fmt: skip


@pytest.mark.parametrize("convolve_first", [False, True])
@pytest.mark.parametrize(("shape", "filters"), SHAPES)
@pytest.mark.parametrize("factor", [1, 2, 4, 8, 16])
def test_fast_equals_direct_with_all_gradients(factor, shape, filters, convolve_first):
    layers = both_forms(shape[-1], filters, factor, convolve_first)
    pair = random_pair(shape, factor, filters)
    fast, direct = (output_and_gradients(layers[method], *pair) for method in METHODS)
    assert_close(fast, direct)


@pytest.mark.parametrize("factor", [2, 16])
def test_fast_equals_direct_with_xla(factor):
    layers = both_forms(5, 4, factor)
    pair = random_pair((2, 3, 5, 5), factor, 4)
    fast = output_and_gradients(layers["exact_fast"], *pair, jit=True)
    assert_close(fast, output_and_gradients(layers["direct"], *pair))


def in_float64(kernel, bias, x, gradient, factor):
    """What `output_and_gradients` approximates, as one sum over pixels, taps and channels."""
    rows, columns = (
        tap_matrix(size, factor).reshape(-1, size, 3).astype(np.float64) for size in x.shape[1:3]
    )
    kernel, bias, x, gradient = (v.astype(np.float64) for v in (kernel, bias, x, gradient))
    return {
        "output": bias
        + np.einsum("Yik,Xjl,bijc,klcf->bYXf", rows, columns, x, kernel, optimize=True),
        "of input": np.einsum(
            "Yik,Xjl,bYXf,klcf->bijc", rows, columns, gradient, kernel, optimize=True
        ),
        "of kernel": np.einsum(
            "Yik,Xjl,bYXf,bijc->klcf", rows, columns, gradient, x, optimize=True
        ),
        "of bias": gradient.sum(axis=(0, 1, 2)),
    }


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("factor", [2, 4, 8, 16])
def test_half_precision_is_no_less_accurate_than_the_direct_form(factor, jit):
    pair = random_pair((2, 5, 7, 40), factor, 8)
    layers = both_forms(40, 8, factor, dtype="mixed_float16")
    truth = in_float64(*layers["direct"].get_weights(), *pair, factor)
    errors = {}
    for method, layer in layers.items():
        values = output_and_gradients(layer, *pair, jit=jit and method == "exact_fast")
        errors[method] = {
            name: np.sqrt(np.mean((values[name] - truth[name]) ** 2)) for name in truth
        }
        assert layer.compute_dtype == "float16"
        assert layer.kernel.dtype == "float32"
    for name, error in errors["exact_fast"].items():
        print(name, error, errors["direct"][name])
        assert error <= 1.01 * errors["direct"][name], (name, errors)


def test_unknown_size_takes_the_direct_form():
    layers = both_forms(3, 2, 4)
    image = keras.Input((None, None, 3))
    model = keras.Model(image, layers["exact_fast"](image))
    assert model.output_shape == (None, None, None, 2)
    x, _ = random_pair((2, 3, 5, 3), 4, 2)
    np.testing.assert_allclose(model(x), layers["direct"](x), rtol=0, atol=1e-5)


def test_layer_comes_back_from_its_configuration():
    layer = ResampleConv2D(3, 4, "direct", True, kernel_regularizer="l2", name="dec1_from3_conv")
    config = layer.get_config()
    assert ResampleConv2D.from_config(config).get_config() == config
    assert config["factor"] == 4
    assert config["convolve_first"] is True


def test_unknown_method_is_refused():
    with pytest.raises(ValueError, match="out of exact_fast, direct, received 'fast'"):
        ResampleConv2D(3, 2, "fast")


@pytest.mark.parametrize(("written", "read"), [METHODS, METHODS[::-1]])
def test_weight_files_of_one_form_load_into_the_other(tmp_path, written, read):
    models = {
        method: build_unet3plus(
            "unet3plus_deepsup_cgm",
            "vgg16",
            (32, 48, 3),
            2,
            NARROW,
            settings=UnitSettings(resample=method),
        )
        for method in METHODS
    }
    models[written].save_weights(tmp_path / "some.weights.h5")
    models[read].load_weights(tmp_path / "some.weights.h5")
    pairs = zip(models[written].weights, models[read].weights, strict=True)
    for one, two in pairs:
        np.testing.assert_array_equal(one, two, err_msg=one.path)
    image = np.random.default_rng(0).random((1, 32, 48, 3)).astype(np.float32)
    for name, value in models[written](image).items():
        np.testing.assert_allclose(models[read](image)[name], value, rtol=0, atol=1e-5)

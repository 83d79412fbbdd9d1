"""Every loss term against hand-computed values, closed forms and an independent MS-SSIM."""

import logging
from math import log

import numpy as np
import pytest
import tensorflow as tf
from scipy.signal import correlate2d

from losses import loss as loss_module
from losses.loss import (
    focal_loss,
    iou_loss,
    ms_ssim_loss,
    reference_focal_loss,
    reference_iou_loss,
    reference_ssim_loss,
)

HYBRID_TERMS = (focal_loss, ms_ssim_loss, iou_loss)
TERMS = (*HYBRID_TERMS, reference_focal_loss, reference_ssim_loss, reference_iou_loss)
C1, C2 = 1e-4, 9e-4
WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)

each_term = pytest.mark.parametrize("term", TERMS, ids=lambda term: term.__name__)
each_hybrid_term = pytest.mark.parametrize("term", HYBRID_TERMS, ids=lambda term: term.__name__)


def pixels(*values):
    """One sample of one row; each value is a pixel: a number, or a tuple with one per class."""
    return np.array(values, np.float32).reshape(1, 1, len(values), -1)


def constant(value, size=32):
    return np.full((1, size, size, 1), value, np.float32)


def blob(size=32, low=8, high=24):
    """One map, (1, size, size, 1), with a square of ones."""
    image = np.zeros((1, size, size, 1), np.float32)
    image[:, low:high, low:high] = 1
    return image


def with_background(image):
    return np.concatenate([1 - image, image], axis=-1)


def random_maps(shape, seed=0):
    """One-hot targets and softmax probabilities."""
    rng = np.random.default_rng(seed)
    *space, classes = shape
    targets = np.eye(classes, dtype=np.float32)[rng.integers(0, classes, space)]
    return targets, rng.dirichlet(np.ones(classes), space).astype(np.float32)


def loss_and_gradient(term, y_true, y_pred):
    y_pred = tf.constant(y_pred)
    with tf.GradientTape() as tape:
        tape.watch(y_pred)
        loss = term(tf.constant(y_true), y_pred)
    return loss.numpy(), tape.gradient(loss, y_pred).numpy()


# Focal


@pytest.mark.parametrize(
    ("y_true", "y_pred", "options", "expected"),
    [
        (pixels(1), pixels(0.8), {}, 0.2**2 * -log(0.8)),
        (pixels(0), pixels(0.8), {}, 0.8**2 * -log(0.2)),  # a false positive costs
        (pixels(1, 0), pixels(0.8, 0.8), {}, (0.04 * -log(0.8) + 0.64 * -log(0.2)) / 2),
        (pixels(1), pixels(0.8), {"gamma": 0.0}, -log(0.8)),
        (pixels(1), pixels(0.5), {"gamma": 3.0}, 0.125 * log(2)),
        (pixels(1), pixels(0.8), {"alpha": 0.25}, 0.25 * 0.04 * -log(0.8)),
        (pixels(0), pixels(0.8), {"alpha": 0.25}, 0.75 * 0.64 * -log(0.2)),
        (pixels((0, 0, 1)), pixels((0.1, 0.6, 0.3)), {}, 0.49 * -log(0.3)),
        (pixels((0, 0, 1)), pixels((0.1, 0.6, 0.3)), {"alpha": 0.8}, 0.8 * 0.49 * -log(0.3)),
        (pixels((1, 0, 0)), pixels((0.1, 0.6, 0.3)), {"alpha": 0.8}, 0.2 * 0.81 * -log(0.1)),
        (pixels(1), pixels(0), {}, -log(1e-7)),
    ],
)
def test_focal(y_true, y_pred, options, expected):
    assert focal_loss(y_true, y_pred, **options).numpy() == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize("alpha", [None, 0.25])
def test_focal_of_a_sigmoid_equals_focal_of_a_two_channel_softmax(alpha):
    y_true, y_pred = random_maps((3, 8, 8, 2))
    np.testing.assert_allclose(
        focal_loss(y_true[..., 1:], y_pred[..., 1:], alpha=alpha),
        focal_loss(y_true, y_pred, alpha=alpha),
        rtol=1e-6,
    )


# IoU


@pytest.mark.parametrize(
    ("y_true", "y_pred", "options", "expected"),
    [
        # I = 0.9 + 0, U = 2 + 1.4 - 0.9
        (pixels(1, 1, 0, 0), pixels(0.9, 0, 0.5, 0), {}, 1 - (0.9 + 1) / (2.5 + 1)),
        (pixels(1, 1, 0, 0), pixels(0.9, 0, 0.5, 0), {"smooth": 1e-6}, 1 - 0.9 / 2.5),
        (pixels(0, 0, 0, 0), pixels(1, 1, 1, 0), {}, 3 / 4),
        (pixels(1, 1, 1, 0), pixels(0, 0, 0, 0), {}, 3 / 4),
        (pixels(1, 0), pixels(1, 0), {}, 0),
        (pixels(0, 0), pixels(0, 0), {}, 0),
        # Class 1: I = 0.5, U = 1 + 0.5 - 0.5; class 2 absent and not predicted
        (pixels((0, 1, 0), (1, 0, 0)), pixels((0.5, 0.5, 0), (1, 0, 0)), {}, (1 - 1.5 / 2) / 2),
        # The same without absent classes, and a sample that has none
        (
            pixels((0, 1, 0), (1, 0, 0)),
            pixels((0.5, 0.5, 0), (1, 0, 0)),
            {"absent_classes": False},
            1 - 1.5 / 2,
        ),
        (pixels(0, 0, 0, 0), pixels(1, 1, 1, 0), {"absent_classes": False}, 0),
        # The same with class 0: I = 1, U = 1 + 1.5 - 1
        (
            pixels((0, 1, 0), (1, 0, 0)),
            pixels((0.5, 0.5, 0), (1, 0, 0)),
            {"include_background": True},
            (1 - 1.5 / 2 + 1 - 2 / 2.5) / 3,
        ),
    ],
)
def test_iou(y_true, y_pred, options, expected):
    assert iou_loss(y_true, y_pred, **options).numpy() == pytest.approx([expected], abs=1e-6)


def test_missing_a_liver_of_five_percent_costs_nearly_everything():
    target = np.zeros((1, 320, 320, 1), np.float32)
    target[:, :16] = 1  # 16 of 320 rows are 5 %, 5120 px
    y_true, y_pred = with_background(target), with_background(np.zeros_like(target))
    assert iou_loss(y_true, y_pred).numpy() == pytest.approx([5120 / 5121], abs=1e-6)
    assert reference_iou_loss(y_true, y_pred).numpy() == pytest.approx([1 - 0.95 / 1.05], abs=1e-6)


# MS-SSIM


def oracle_ssim(g, p):
    """Mean SSIM of two float64 images, straight from the definition."""
    windows = [np.arange(n) - (n - 1) / 2 for n in (min(11, side) for side in g.shape)]
    window = np.exp(-(windows[0][:, None] ** 2 + windows[1] ** 2) / (2 * 1.5**2))
    window /= window.sum()

    def mean(image):
        return correlate2d(image, window, mode="valid")

    mu_g, mu_p = mean(g), mean(p)
    var_g, var_p = mean(g * g) - mu_g**2, mean(p * p) - mu_p**2
    covariance = mean(g * p) - mu_g * mu_p
    luminance = (2 * mu_p * mu_g + C1) / (mu_p**2 + mu_g**2 + C1)
    structure = (2 * covariance + C2) / (var_p + var_g + C2)
    return (luminance * structure).mean()


def oracle_ms_ssim(g, p, scales):
    weights = np.array(WEIGHTS[:scales]) * sum(WEIGHTS) / sum(WEIGHTS[:scales])
    result = 1.0
    for weight in weights:
        result *= max(oracle_ssim(g, p), 1e-6) ** weight
        height, width = (side // 2 * 2 for side in g.shape)
        g, p = (
            image[:height, :width].reshape(height // 2, 2, width // 2, 2).mean((1, 3))
            for image in (g, p)
        )
    return result


@pytest.mark.parametrize(
    ("height", "width", "scales"),
    [(176, 180, 5), (175, 200, 4), (64, 64, 3), (45, 90, 3), (16, 16, 1), (11, 30, 1), (7, 10, 1)],
)
def test_ms_ssim_equals_an_independent_implementation(height, width, scales):
    rng = np.random.default_rng(height)
    target = blob(height, height // 4, height // 2)[:, :, :1] * np.ones((1, 1, width, 1))
    target[:, :, : width // 3] = 0
    prediction = np.clip(0.8 * target + 0.2 * rng.random(target.shape), 0, 1)
    expected = 1 - oracle_ms_ssim(target[0, :, :, 0], prediction[0, :, :, 0], scales)
    assert ms_ssim_loss(target, prediction).numpy() == pytest.approx([expected], abs=1e-5)


@pytest.mark.parametrize(("p", "g"), [(0.5, 1), (0.9, 1), (0.5, 0), (1, 0), (0.3, 0.3)])
@pytest.mark.parametrize("size", [8, 32, 176])
def test_ms_ssim_of_constant_images_is_their_luminance(p, g, size):
    luminance = (2 * p * g + C1) / (p**2 + g**2 + C1)
    expected = 1 - luminance ** sum(WEIGHTS)
    actual = ms_ssim_loss(constant(g, size), constant(p, size)).numpy()
    assert actual == pytest.approx([expected], abs=2e-5)


def test_ms_ssim_averages_over_foreground_classes():
    y_true, y_pred = random_maps((2, 24, 24, 3))
    per_class = [
        ms_ssim_loss(y_true[..., c : c + 1], y_pred[..., c : c + 1]).numpy() for c in range(3)
    ]
    np.testing.assert_allclose(
        ms_ssim_loss(y_true, y_pred), (per_class[1] + per_class[2]) / 2, rtol=1e-5
    )
    np.testing.assert_allclose(
        ms_ssim_loss(y_true, y_pred, include_background=True), sum(per_class) / 3, rtol=1e-5
    )


def test_ssim_survives_the_matrix_products_of_a_gpu(monkeypatch):
    """TF32 keeps 10 bits of each factor; with textbook variances the loss is 18 % off here."""

    def tf32(x):
        bits = np.asarray(x, np.float32).view(np.uint32)
        return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)

    monkeypatch.setattr(
        loss_module.ops, "einsum", lambda axes, a, b: tf.constant(np.einsum(axes, tf32(a), tf32(b)))
    )
    rng = np.random.default_rng(0)
    target = blob(128, 30, 90)
    prediction = np.clip(0.02 + 0.96 * target + 0.005 * rng.normal(size=target.shape), 0, 1)
    expected = 1 - oracle_ssim(*(np.float64(image[0, :, :, 0]) for image in (target, prediction)))
    assert reference_ssim_loss(target, prediction).numpy() == pytest.approx([expected], rel=0.02)


def test_fewer_scales_are_logged_once_per_size(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("unet3plus"), "propagate", True)
    loss_module._scale_weights.cache_clear()
    with caplog.at_level(logging.INFO, "unet3plus"):
        for size in (64, 64, 48, 176):
            ms_ssim_loss(constant(1, size), constant(1, size))
    assert [record.getMessage() for record in caplog.records] == [
        f"MS-SSIM: {size} x {size} px is enough for 3 of 5 scales; their weights are renormalised"
        for size in (64, 48)
    ]


# The predecessor's formula


@pytest.mark.parametrize(
    ("y_true", "y_pred", "expected"),
    [
        (pixels(1, 0), pixels(0.8, 0.9), 4 * 0.2**2 * -log(0.8) / 2),
        (
            pixels((0, 1), (1, 0)),
            pixels((0.4, 0.6), (0.5, 0.5)),
            4 * (0.4**2 * -log(0.6) + 0.5**2 * -log(0.5)) / 2,
        ),
        (pixels(0, 0), pixels(1, 1), 0),  # false positives of a sigmoid are free
    ],
)
def test_reference_focal(y_true, y_pred, expected):
    assert reference_focal_loss(y_true, y_pred).numpy() == pytest.approx([expected], rel=1e-5)


def test_reference_ssim_equals_tensorflow():
    y_true, y_pred = random_maps((3, 40, 56, 3))
    expected = 1 - tf.image.ssim(y_true, y_pred, max_val=1.0).numpy()
    np.testing.assert_allclose(reference_ssim_loss(y_true, y_pred), expected, atol=1e-5)


# Every term


@each_term
def test_value_of_a_sample_does_not_depend_on_its_batch(term):
    y_true, y_pred = random_maps((4, 24, 24, 3))
    singly = [term(y_true[i : i + 1], y_pred[i : i + 1]).numpy() for i in range(4)]
    batch = term(y_true, y_pred).numpy()
    assert batch.shape == (4,)
    assert len(set(batch.round(4))) == 4
    np.testing.assert_allclose(batch, np.concatenate(singly), rtol=1e-5)


@each_term
@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize(
    ("y_true", "y_pred"),
    [
        pytest.param(blob(), blob(), id="perfect"),
        pytest.param(blob(), 1 - blob(), id="inverted"),
        pytest.param(blob(), constant(0.5), id="half"),
        pytest.param(blob(), constant(0), id="missed"),
        pytest.param(blob(), constant(1), id="full"),
        pytest.param(constant(0), constant(0), id="empty"),
        pytest.param(constant(0), constant(1), id="empty, called full"),
        pytest.param(constant(0), constant(0.5), id="empty, called half"),
        pytest.param(constant(1), constant(1), id="all"),
        pytest.param(constant(1), constant(0), id="all missed"),
    ],
)
def test_loss_and_gradient_are_finite(term, classes, y_true, y_pred):
    if classes == 2:
        y_true, y_pred = with_background(y_true), with_background(y_pred)
    loss, gradient = loss_and_gradient(term, y_true, y_pred)
    assert np.isfinite(loss).all()
    assert np.isfinite(gradient).all()
    if (y_true == y_pred).all():
        assert loss == pytest.approx([0], abs=1e-6)
    elif term in HYBRID_TERMS:
        assert loss > 0.1


@each_hybrid_term
@pytest.mark.parametrize("classes", [1, 2])
def test_false_positives_on_an_empty_slice_are_penalised_and_pushed_down(term, classes):
    y_true, y_pred = constant(0), 0.9 * blob(low=14, high=18)
    if classes == 2:
        y_true, y_pred = with_background(y_true), with_background(y_pred)
    loss, gradient = loss_and_gradient(term, y_true, y_pred)
    assert loss > 0.005
    assert (gradient[0, 14:18, 14:18, -1] - gradient[0, 14:18, 14:18, 0] * (classes - 1) > 0).all()


@each_term
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_widened_before_any_sum(term, dtype):
    """320 x 320 ones sum to 102400, more than float16 holds (65504)."""
    y_true, y_pred = (tf.cast(constant(value, 320), dtype) for value in (1, 0.5))
    loss = term(y_true, y_pred)
    assert loss.dtype == tf.float32
    np.testing.assert_allclose(loss, term(constant(1, 320), constant(0.5, 320)), rtol=1e-6)

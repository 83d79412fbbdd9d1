"""The terms of the hybrid loss: focal (pixel level), MS-SSIM (patch level), IoU (map level).

Every function takes `y_true`, one-hot targets, and `y_pred`, probabilities, both of shape
(batch, height, width, classes) in any float or integer type, and returns one float32 value per
sample, shape (batch,). One value per sample, not one per batch: Keras then averages over the global
batch, whatever the number of replicas. All arithmetic is float32, also under mixed precision.

One class means a single sigmoid map. With more, class 0 is the background, and the region terms
average over classes 1, 2, …, so that neither the background nor a large organ hides a small one.

Source: Huang et al., "UNet 3+", ICASSP 2020. The `reference_*` functions are the formula of the
predecessor (NVIDIA DeepLearningExamples, UNet3P), kept for comparison.
"""

from functools import cache

import numpy as np
from keras import KerasTensor, ops

from utils.log import logger

SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # Wang et al. 2003, finest scale first
WINDOW = 11  # px
SIGMA = 1.5  # px
C1, C2 = 0.01**2, 0.03**2  # for values from 0 to 1
PROBABILITY_FLOOR = 1e-7  # keeps logarithms finite
TERM_FLOOR = 1e-6  # keeps the gradient of term ** weight finite; below an empty slice called full
REFERENCE_EPSILON = 1e-9
REFERENCE_ALPHA = 4.0
REFERENCE_GAMMA = 2.0
SPACE = (1, 2)  # axes


def focal_loss(
    y_true: KerasTensor, y_pred: KerasTensor, gamma: float = 2.0, alpha: float | None = None
) -> KerasTensor:
    """Focal loss (Lin et al. 2017): mean over pixels of -Σ_c α_c y_c (1 - p_c)^γ log p_c.

    The sum runs over all classes with the background; a single sigmoid map p counts as the pair
    (1 - p, p), so that false positives cost as much as misses and softmax over two channels gives
    the same value. Probabilities are clipped to [1e-7, 1 - 1e-7]. From 0 (perfect, also on an empty
    slice) to 16.1, or less with `alpha`.

    Args:
        y_true: One-hot targets, (batch, height, width, classes).
        y_pred: Probabilities, same shape.
        gamma: How strongly pixels that are already right are played down; 0 gives cross entropy.
        alpha: Weight of every foreground class, 1 - alpha for the background; None for 1 and 1.
    """
    y_true, y_pred = (_with_background(_float32(y)) for y in (y_true, y_pred))
    probability = ops.clip(y_pred, PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR)
    focal = -y_true * ops.power(1 - probability, gamma) * ops.log(probability)
    if alpha is not None:
        foreground_classes = focal.shape[-1] - 1
        focal *= ops.convert_to_tensor([1 - alpha] + [alpha] * foreground_classes, "float32")
    return ops.mean(ops.sum(focal, axis=-1), axis=SPACE)


def ms_ssim_loss(
    y_true: KerasTensor, y_pred: KerasTensor, include_background: bool = False
) -> KerasTensor:
    """1 - MS-SSIM per foreground class, averaged over the classes.

    MS-SSIM is the product over scales m of term_m ** weight_m, where term_m is the mean SSIM of all
    11 x 11 windows (Gaussian, sigma 1.5 px, none reaching over the edge) after m halvings by 2 x 2
    averaging. SSIM holds the luminance at every scale, as in the UNet 3+ paper; Wang et al. 2003
    have it at the coarsest only. Terms are floored at 1e-6, so that the gradient stays finite.

    Five scales need sides of 176 px; a smaller image uses fewer, their weights raised to the same
    sum, and below 11 px the window shrinks to the image. From 0 (perfect, also when both are empty)
    to 1 - 1e-6; an empty slice predicted full gives 1 - C1 / (1 + C1) = 0.9999.

    Args:
        y_true: One-hot targets, (batch, height, width, classes); height and width are static.
        y_pred: Probabilities, same shape.
        include_background: Count class 0 of several as well.
    """
    y_true, y_pred = (_foreground(_float32(y), include_background) for y in (y_true, y_pred))
    height, width, classes = y_pred.shape[1:]
    y_true, y_pred = _class_maps(y_true), _class_maps(y_pred)
    similarity = 1.0
    for scale, weight in enumerate(_scale_weights(height, width)):
        if scale > 0:
            y_true, y_pred = _halved(y_true), _halved(y_pred)
        term = ops.mean(_ssim_map(y_true, y_pred), axis=SPACE)
        similarity *= ops.power(ops.maximum(term, TERM_FLOOR), weight)
    return _mean_over_classes(1 - similarity, classes)


def iou_loss(
    y_true: KerasTensor,
    y_pred: KerasTensor,
    smooth: float = 1.0,
    include_background: bool = False,
    absent_classes: bool = True,
) -> KerasTensor:
    """1 - (I + smooth) / (U + smooth) per foreground class, averaged over the classes.

    I = Σ y p and U = Σ y + Σ p - I, sums over the pixels of one sample. From 0 (perfect, also when
    both are empty) to almost 1. With an empty target, n px of false positives cost
    n / (n + smooth); a liver of 5120 px (5 % of 320 x 320) missed altogether costs
    5120 / 5121 = 0.9998.

    Args:
        y_true: One-hot targets, (batch, height, width, classes).
        y_pred: Probabilities, same shape.
        smooth: Pixels added to I and U; keeps value and gradient finite where both are empty.
        include_background: Count class 0 of several as well.
        absent_classes: Count classes that are not in the target of a sample. Without them a sample
            is averaged over the classes it has, and costs 0 where it has none. That keeps a class
            which most samples lack from being predicted nowhere.
    """
    y_true, y_pred = (_foreground(_float32(y), include_background) for y in (y_true, y_pred))
    losses = 1 - _soft_iou(y_true, y_pred, smooth, SPACE)
    if absent_classes:
        return ops.mean(losses, axis=-1)
    present = _float32(ops.any(y_true > 0, axis=SPACE))
    return ops.sum(present * losses, axis=-1) / ops.maximum(ops.sum(present, axis=-1), 1.0)


def reference_focal_loss(y_true: KerasTensor, y_pred: KerasTensor) -> KerasTensor:
    """The predecessor's focal term: mean over pixels of max_c 4 y_c (1 - q_c)² (-log q_c).

    q = p + 1e-9. Only the positive term: with a single sigmoid map, false positives are free.
    """
    y_true, probability = _float32(y_true), _float32(y_pred) + REFERENCE_EPSILON
    modulation = REFERENCE_ALPHA * ops.power(1 - probability, REFERENCE_GAMMA)
    focal = -y_true * modulation * ops.log(probability)
    return ops.mean(ops.max(focal, axis=-1), axis=SPACE)


def reference_ssim_loss(y_true: KerasTensor, y_pred: KerasTensor) -> KerasTensor:
    """The predecessor's patch term: 1 - SSIM at a single scale, mean over all channels.

    Equals `1 - tf.image.ssim(y_true, y_pred, max_val=1)`. From 0 to 2.
    """
    y_true, y_pred = _float32(y_true), _float32(y_pred)
    ssim = _ssim_map(_class_maps(y_true), _class_maps(y_pred))
    return _mean_over_classes(1 - ops.mean(ssim, axis=SPACE), y_pred.shape[-1])


def reference_iou_loss(y_true: KerasTensor, y_pred: KerasTensor) -> KerasTensor:
    """The predecessor's map term: 1 - soft IoU summed jointly over pixels and all channels.

    The background dominates: with two classes, missing a liver of 5 % of the slice costs
    1 - 0.95 / 1.05 = 0.095.
    """
    everything = (*SPACE, 3)
    return 1 - _soft_iou(_float32(y_true), _float32(y_pred), REFERENCE_EPSILON, everything)


def _float32(y: KerasTensor) -> KerasTensor:
    return ops.cast(y, "float32")


def _with_background(y: KerasTensor) -> KerasTensor:
    return ops.concatenate([1 - y, y], axis=-1) if y.shape[-1] == 1 else y


def _foreground(y: KerasTensor, include_background: bool) -> KerasTensor:
    return y if include_background or y.shape[-1] == 1 else y[..., 1:]


def _class_maps(y: KerasTensor) -> KerasTensor:
    """(batch, height, width, classes) as (batch * classes, height, width)."""
    height, width = y.shape[1:3]
    return ops.reshape(ops.moveaxis(y, -1, 1), (-1, height, width))


def _mean_over_classes(values: KerasTensor, classes: int) -> KerasTensor:
    """From one value per class map, (batch * classes,), to one per sample, (batch,)."""
    return ops.mean(ops.reshape(values, (-1, classes)), axis=-1)


def _soft_iou(
    y_true: KerasTensor, y_pred: KerasTensor, smooth: float, axes: tuple[int, ...]
) -> KerasTensor:
    intersection = ops.sum(y_true * y_pred, axis=axes)
    union = ops.sum(y_true, axis=axes) + ops.sum(y_pred, axis=axes) - intersection
    return (intersection + smooth) / (union + smooth)


@cache
def _scale_weights(height: int, width: int) -> tuple[float, ...]:
    """The exponents of the scales at which the window still fits; the finest always counts."""
    scales = 1
    while scales < len(SCALE_WEIGHTS) and min(height, width) >> scales >= WINDOW:
        scales += 1
    if scales < len(SCALE_WEIGHTS):
        logger.info(
            "MS-SSIM: %d x %d px is enough for %d of %d scales; their weights are renormalised",
            *(height, width, scales, len(SCALE_WEIGHTS)),
        )
    share = sum(SCALE_WEIGHTS[:scales]) / sum(SCALE_WEIGHTS)
    return tuple(weight / share for weight in SCALE_WEIGHTS[:scales])


def _halved(maps: KerasTensor) -> KerasTensor:
    pooled = ops.average_pool(maps[..., None], 2, strides=2, data_format="channels_last")
    return pooled[..., 0]


def _ssim_map(y_true: KerasTensor, y_pred: KerasTensor) -> KerasTensor:
    """SSIM in every window: maps of (n, height, width) give (n, height - 10, width - 10).

    (2 μ_p μ_g + C1) / (μ_p² + μ_g² + C1) · (2 σ_pg + C2) / (σ_p² + σ_g² + C2), written with the
    error e = p - g: μ_p² + μ_g² = 2 μ_p μ_g + μ_e² and σ_p² + σ_g² = 2 σ_pg + σ_e². Blurring e
    instead of p keeps the small variances of a good prediction from drowning in the rounding of its
    large means, which matters on GPUs, whose float32 matrix products keep 10 bits (TF32).
    """
    error = y_pred - y_true
    # Not error * error: its two equal gradients become one tensor, which TensorFlow's AddN takes as
    # its accumulator or not, depending on who comes first, and rounds differently call by call
    moments = [y_true, error, ops.square(y_true), y_true * error, ops.square(error)]
    mean_true, mean_error, square_true, product, square_error = ops.unstack(
        _blurred(ops.stack(moments)), len(moments)
    )
    mean_product = mean_true * (mean_true + mean_error)
    covariance = square_true + product - mean_product
    variance_error = square_error - ops.square(mean_error)
    luminance = 2 * mean_product + C1
    structure = 2 * covariance + C2
    similarity = luminance / (luminance + ops.square(mean_error))
    return similarity * structure / (structure + variance_error)


def _blurred(maps: KerasTensor) -> KerasTensor:
    """Gaussian window means of (k, n, height, width), as two products with constant matrices."""
    height, width = maps.shape[2:]
    # Not matmul: TensorFlow on CPU corrupts memory where it broadcasts (tensorflow#117700)
    rows = ops.einsum("knhw,pw->knhp", maps, _window_matrix(width))
    return ops.einsum("oh,knhp->knop", _window_matrix(height), rows)


@cache
def _window_matrix(size: int) -> np.ndarray:
    """The (size - window + 1, size) matrix whose rows hold the Gaussian at every position."""
    window = min(WINDOW, size)
    offsets = np.arange(window) - (window - 1) / 2
    gaussian = np.exp(-(offsets**2) / (2 * SIGMA**2))
    bands = [np.eye(size - window + 1, size, shift) for shift in range(window)]
    return np.tensordot(gaussian / gaussian.sum(), bands, axes=1).astype(np.float32)

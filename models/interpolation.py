"""Bilinear up-sampling by a whole factor, and the shifts of a 3x3 convolution, as matrices."""

from functools import cache

import numpy as np
from keras import KerasTensor, ops


@cache
def bilinear_matrix(size: int, factor: int) -> np.ndarray:
    """The (`factor` · size, size) matrix that interpolates linearly along one axis, float32.

    Pixel centres lie at half integers and values are held constant beyond the first and the last,
    as in Keras's `UpSampling2D(interpolation="bilinear")`. Rows sum to 1.
    """
    position = (np.arange(size * factor) + 0.5) / factor - 0.5
    before = np.floor(position).astype(int)
    share = (position - before)[:, None]
    pixels = np.eye(size)
    first, second = pixels[before.clip(0)], pixels[(before + 1).clip(max=size - 1)]
    return ((1 - share) * first + share * second).astype(np.float32)


@cache
def tap_matrix(size: int, factor: int, convolve_first: bool = False) -> np.ndarray:
    """Interpolation and the three taps of a 'same' convolution, (`factor` · size, 3 · size).

    Column 3 · j + k holds what source pixel j gives to the result through tap k, whose offset is
    k - 1. Taps are shifts of the interpolated pixels, or of the source pixels if the convolution
    comes first; what they find outside is 0, the convolution's padding.
    """
    interpolate = bilinear_matrix(size, factor)
    length = size if convolve_first else size * factor
    shifts = [np.eye(length, k=offset, dtype=np.float32) for offset in (-1, 0, 1)]
    taps = [interpolate @ s if convolve_first else s @ interpolate for s in shifts]
    return np.stack(taps, axis=-1).reshape(size * factor, 3 * size)


def banded_matmul(matrix: np.ndarray, x: KerasTensor, blocks: int) -> KerasTensor:
    """`matrix` @ `x` for a constant (R, C) matrix that has values near its diagonal only.

    (B, C, N) to (B, R, N). Rows are taken in `blocks` parts, each with the columns it needs, which
    leaves about 1 / `blocks` of the work. The gradient is the same with the matrix transposed;
    TensorFlow's own would fill up the gradient of every part with zeros and add them all.
    """

    @ops.custom_gradient
    def product(x: KerasTensor):
        def gradient(*args, upstream=None):
            return banded_matmul(matrix.T, args[0] if upstream is None else upstream, blocks)

        parts = []
        for rows in np.array_split(matrix, blocks):
            columns = np.flatnonzero(rows.any(axis=0))
            window = slice(int(columns[0]), int(columns[-1]) + 1)
            parts.append(ops.matmul(np.ascontiguousarray(rows[:, window]), x[:, window]))
        return ops.concatenate(parts, axis=1), gradient

    return product(x) if blocks > 1 else ops.matmul(matrix, x)

"""A 3x3 convolution together with bilinear up-sampling, exactly but cheaply.

Mixing channels commutes with moving and interpolating pixels. So channels are mixed first, once for
each tap of the kernel, where pixels are few; what is left, the interpolation and the sum over the
shifted taps, is a product with one constant matrix per axis, of which only a band is not zero.
"""

from typing import Any

import keras
from keras import KerasTensor, ops

from models.interpolation import banded_matmul, tap_matrix

# Source pixels of an axis that are interpolated together: with fewer, fewer zeros are multiplied,
# but there are more and smaller products
BLOCK = 20
METHODS = ("exact_fast", "direct")
# Arguments of Conv2D that this layer sets itself
FIXED = ("kernel_size", "strides", "padding", "data_format", "dilation_rate", "groups")


@keras.saving.register_keras_serializable(package="unet3plus")
class ResampleConv2D(keras.layers.Conv2D):
    """Up-sampling by `factor`, then a 3x3 convolution with 'same' padding; or the other way round.

    (B, h, w, C) to (B, factor · h, factor · w, `filters`). Interpolation is bilinear (half-pixel
    centres, clamped at the edge) and always float32: half precision would round in between, and
    the gradient of its resize does not compile with XLA. The variables are those of a `Conv2D`,
    `kernel` (3, 3, C, `filters`) and `bias` (`filters`,), whatever the method, so that one weight
    file serves both.

    Args:
        filters: output channels.
        factor: of the up-sampling; 1 for none.
        method: "exact_fast" mixes channels at the low resolution; it needs static height and width
            and falls back to "direct" without. "direct" does what the definition says.
        convolve_first: up-sample the result of the convolution instead of its input.
        **kwargs: of `keras.layers.Conv2D`.

    Raises:
        ValueError: unknown method.
    """

    def __init__(
        self,
        filters: int,
        factor: int,
        method: str = "exact_fast",
        convolve_first: bool = False,
        **kwargs,
    ):
        if method not in METHODS:
            raise ValueError(f"expected a method out of {', '.join(METHODS)}, received {method!r}")
        super().__init__(
            filters, kernel_size=3, padding="same", data_format="channels_last", **kwargs
        )
        self.factor = factor
        self.method = method
        self.convolve_first = convolve_first

    def convolution_op(self, inputs: KerasTensor, kernel: KerasTensor) -> KerasTensor:
        """Both steps without bias and activation, which `call` adds as in any convolution.

        The bias may come last in either order, as interpolation leaves a constant alone.
        """
        if self.method == "exact_fast" and None not in inputs.shape[1:3]:
            return self._mix_then_interpolate(inputs, kernel)
        if self.convolve_first:
            return self._upsample(super().convolution_op(inputs, kernel))
        return super().convolution_op(self._upsample(inputs), kernel)

    def _upsample(self, x: KerasTensor) -> KerasTensor:
        if self.factor == 1:
            return x
        size = [side * self.factor for side in ops.shape(x)[1:3]]
        upsampled = ops.image.resize(
            ops.cast(x, "float32"), size, interpolation="bilinear", data_format="channels_last"
        )
        return ops.cast(upsampled, self.compute_dtype)

    def _mix_then_interpolate(self, x: KerasTensor, kernel: KerasTensor) -> KerasTensor:
        """The taps of all pixels, (B, h, w, 9 · filters), collected along each axis in turn.

        The axes stay in an order in which each product contracts neighbouring ones, so that only
        one transposition moves data. No product has rank 4, for the reason given in `losses.loss`.
        """
        height, width, channels = x.shape[1:]
        wide = width * self.factor
        mixing = ops.transpose(ops.cast(kernel, "float32"), (2, 1, 0, 3))  # C, kx, ky, filters
        mixing = ops.reshape(mixing, (channels, 9 * self.filters))

        x = ops.matmul(ops.reshape(ops.cast(x, "float32"), (-1, channels)), mixing)
        x = self._interpolate(ops.reshape(x, (-1, 3 * width, 3 * self.filters)))
        x = ops.transpose(ops.reshape(x, (-1, wide, 3, self.filters)), (0, 2, 1, 3))
        x = self._interpolate(ops.reshape(x, (-1, 3 * height, wide * self.filters)))
        x = ops.reshape(x, (-1, height * self.factor, wide, self.filters))
        return ops.cast(x, self.compute_dtype)

    def _interpolate(self, taps: KerasTensor) -> KerasTensor:
        """(N, 3 · size, M), the taps of every pixel of an axis, to (N, factor · size, M)."""
        size = taps.shape[1] // 3
        matrix = tap_matrix(size, self.factor, self.convolve_first)
        return banded_matmul(matrix, taps, blocks=-(-size // BLOCK))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """(B, factor · h, factor · w, `filters`)."""
        batch, *sides, _ = input_shape
        return (batch, *(side and side * self.factor for side in sides), self.filters)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = super().get_config()
        for name in FIXED:
            del config[name]
        own = {name: getattr(self, name) for name in ("factor", "method", "convolve_first")}
        return {**config, **own}

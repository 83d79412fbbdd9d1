"""Segmentation heads (deep supervision) and the classification-guided module; all in float32."""

import keras
from keras import ops

from models.resample_conv import ResampleConv2D


def segmentation_head(
    x: keras.KerasTensor, level: int, classes: int, resample: str
) -> keras.KerasTensor:
    """Class probabilities at full size from the decoder feature of `level`.

    3x3 convolution, bilinear up-sampling by 2^(level-1), then softmax over `classes` channels, or
    sigmoid when there is only one (figure 1c). Shape (B, H, W, `classes`). `resample` is a method
    of `ResampleConv2D`, which pays also without up-sampling, as a convolution to very few channels
    leaves most of a vector unit idle.
    """
    name = f"head{level}"
    x = ResampleConv2D(
        classes,
        2 ** (level - 1),
        resample,
        convolve_first=True,
        dtype="float32",
        name=f"{name}_conv",
    )(x)
    activation = "softmax" if classes > 1 else "sigmoid"
    return keras.layers.Activation(activation, dtype="float32", name=f"{name}_{activation}")(x)


def presence_head(bottom: keras.KerasTensor, dropout: float) -> keras.KerasTensor:
    """Probabilities that a slice holds no organ and that it holds one, shape (B, 2).

    Dropout, 1x1 convolution to two channels, global max-pooling, sigmoid on the deepest encoder
    feature (figure 3). The two are trained as separate yes/no answers and need not sum to 1.
    """
    x = keras.layers.Dropout(dropout, name="cgm_dropout")(bottom)
    x = keras.layers.Conv2D(2, kernel_size=1, dtype="float32", name="cgm_conv")(x)
    x = keras.layers.GlobalMaxPooling2D(dtype="float32", name="cgm_pool")(x)
    return keras.layers.Activation("sigmoid", dtype="float32", name="cgm_sigmoid")(x)


@keras.saving.register_keras_serializable(package="unet3plus")
class ClassificationGate(keras.layers.Layer):
    """Empties the probability maps of slices that the classifier holds to be without organ.

    Call it on [probabilities (B, H, W, C), presence (B, 2)]. Where presence's argmax is 0 the
    result is exactly background: 0 for a sigmoid map, (1, 0, …) for softmax. The argmax passes no
    gradient; the classifier learns from its own loss.

    Args:
        mode: "inference" leaves maps untouched while training, so that slices which are still
            misjudged keep their gradient; "always" gates then as well.
    """

    def __init__(self, mode: str = "inference", **kwargs):
        super().__init__(**kwargs)
        if mode not in ("inference", "always"):
            raise ValueError(f"expected mode 'inference' or 'always', received {mode!r}")
        self.mode = mode

    def call(self, inputs: list, training: bool = False):
        """The gated probabilities, of the same shape."""
        probabilities, presence = inputs
        if training and self.mode == "inference":
            return probabilities
        is_present = presence[:, 1] > presence[:, 0]  # argmax, which ONNX cannot be made of
        gate = ops.cast(is_present, probabilities.dtype)[:, None, None, None]
        classes = probabilities.shape[-1]
        background = ops.one_hot(0, classes, dtype=probabilities.dtype) if classes > 1 else 0.0
        return gate * probabilities + (1.0 - gate) * background

    def compute_output_shape(self, input_shape: list) -> tuple:
        """The shape of the probabilities."""
        return input_shape[0]

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {**super().get_config(), "mode": self.mode}

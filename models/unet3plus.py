"""UNet 3+ as a Keras model that turns one mask into the target of every head."""

from collections.abc import Sequence

import keras
from keras import ops

from models.backbones import LEVELS, build_encoder, scale_input
from models.blocks import UnitSettings
from models.decoder import build_decoder
from models.heads import ClassificationGate, presence_head, segmentation_head

HEADS = ("d1", "d2", "d3", "d4", "e5")  # by level; d1 is the one that is used after training
MAIN_HEAD = HEADS[0]
PRESENCE = "presence"
VARIANTS = ("unet3plus", "unet3plus_deepsup", "unet3plus_deepsup_cgm")


@keras.saving.register_keras_serializable(package="unet3plus")
class UNet3Plus(keras.Model):
    """A functional model with a dict of outputs, trained on masks of class ids.

    Outputs: "d1" (and under deep supervision "d2", "d3", "d4", "e5"), class probabilities of shape
    (B, H, W, classes); with the classification-guided module also "presence", (B, 2). The target
    passed to `fit` is the mask, integers of shape (B, H, W); with a single class, any id above 0 is
    foreground.

    Attributes:
        head_metrics: metrics of the main head, logged under their own names in every variant.
    """

    head_metrics: Sequence[keras.metrics.Metric] = ()

    def targets(self, mask) -> dict:
        """What every output is compared with: one-hot masks, and presence [no, yes] as one-hot."""
        classes = self.output[MAIN_HEAD].shape[-1]
        if classes == 1:
            one_hot = ops.cast(mask > 0, "float32")[..., None]
        else:
            one_hot = ops.one_hot(ops.cast(mask, "int32"), classes, dtype="float32")
        targets = dict.fromkeys(self.output, one_hot)
        if PRESENCE in targets:
            is_present = ops.any(mask > 0, axis=(1, 2))
            targets[PRESENCE] = ops.one_hot(ops.cast(is_present, "int32"), 2, dtype="float32")
        return targets

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The weighted sum of the compiled losses over all outputs, plus regularisation."""
        return super().compute_loss(x, self.targets(y), y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None) -> dict:
        """Update and return the metrics of the main head."""
        target = self.targets(y)[MAIN_HEAD]
        for metric in self.head_metrics:
            metric.update_state(target, y_pred[MAIN_HEAD], sample_weight=sample_weight)
        return self.get_metrics_result()


def build_unet3plus(
    variant: str = "unet3plus",
    backbone: str = "unet3plus",
    input_shape: tuple[int | None, int | None, int] = (320, 320, 3),
    classes: int = 1,
    filters: Sequence[int] = (64, 128, 256, 512, 1024),
    cgm_dropout: float = 0.5,
    cgm_gate: str = "inference",
    settings: UnitSettings | None = None,
    input_scaling: str = "none",
) -> UNet3Plus:
    """The full graph of a variant: every head it is trained with.

    Args:
        variant: "unet3plus", "unet3plus_deepsup" (five heads) or "unet3plus_deepsup_cgm" (five
            heads gated by the classification-guided module).
        backbone: a row of `models.backbones.ENCODERS`.
        input_shape: height, width (multiples of 16, or None) and channels.
        classes: 1 for a sigmoid map, otherwise softmax with background as class 0.
        filters: channels of encoder levels 1 to 5; the first is also the decoder branches' width.
        cgm_dropout: dropout rate before the classifier.
        cgm_gate: see `ClassificationGate`.
        settings: of the convolution units.
        input_scaling: "imagenet" for encoders that start from ImageNet weights, else "none".

    Raises:
        ValueError: unknown variant, backbone or scaling, or not five filters.
    """
    if variant not in VARIANTS:
        raise ValueError(f"expected a variant out of {', '.join(VARIANTS)}, received {variant!r}")
    if len(filters) != LEVELS:
        raise ValueError(f"expected {LEVELS} filters, received {len(filters)}")
    settings = settings or UnitSettings()
    image = keras.Input(input_shape, name="image")
    encoder = build_encoder(scale_input(image, input_scaling), backbone, filters, settings)
    decoder = build_decoder(encoder, filters[0], settings)

    supervised = HEADS if variant != "unet3plus" else HEADS[:1]
    outputs = {
        head: segmentation_head(decoder[level - 1], level, classes, settings.resample)
        for level, head in enumerate(supervised, start=1)
    }
    if variant == "unet3plus_deepsup_cgm":
        presence = presence_head(encoder[-1], cgm_dropout)
        for level, head in enumerate(supervised, start=1):
            gate = ClassificationGate(cgm_gate, dtype="float32", name=f"head{level}_gate")
            outputs[head] = gate([outputs[head], presence])
        outputs[PRESENCE] = presence
    return UNet3Plus(inputs=image, outputs=outputs, name=variant)

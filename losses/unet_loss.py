"""The hybrid loss of one segmentation head, and the loss of the classification-guided module."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import keras
from keras import KerasTensor, ops
from omegaconf import DictConfig

from losses.loss import (
    focal_loss,
    iou_loss,
    ms_ssim_loss,
    reference_focal_loss,
    reference_iou_loss,
    reference_ssim_loss,
)

LossTerm = Callable[[KerasTensor, KerasTensor], KerasTensor]


@dataclass(frozen=True)
class LossSettings:
    """Which terms the loss of a segmentation head has; see `losses/loss.py` for each of them.

    Attributes:
        type: "unet3p_hybrid", or "reference" for the predecessor's formula, which takes no
            parameters: only the three switches apply to it.
        focal_enabled: Whether the focal term counts.
        focal_gamma: Focusing exponent.
        focal_alpha: Weight of the foreground, None for no weighting.
        ms_ssim_enabled: Whether the MS-SSIM (reference: SSIM) term counts.
        iou_enabled: Whether the IoU term counts.
        iou_smooth: Pixels added to intersection and union.
        iou_absent_classes: Whether the IoU term counts classes that a sample lacks.
        include_background: Whether class 0 counts in the MS-SSIM and IoU terms.
    """

    type: str = "unet3p_hybrid"
    focal_enabled: bool = True
    focal_gamma: float = 2.0
    focal_alpha: float | None = None
    ms_ssim_enabled: bool = True
    iou_enabled: bool = True
    iou_smooth: float = 1.0
    iou_absent_classes: bool = True
    include_background: bool = False

    def terms(self) -> dict[str, LossTerm]:
        """The enabled terms by name: "focal", "ms_ssim" ("ssim" in the reference) and "iou".

        Raises:
            ValueError: `type` is unknown, or no term is enabled.
        """
        include_background = self.include_background
        focal = partial(focal_loss, gamma=self.focal_gamma, alpha=self.focal_alpha)
        ms_ssim = partial(ms_ssim_loss, include_background=include_background)
        iou = partial(
            iou_loss,
            smooth=self.iou_smooth,
            include_background=include_background,
            absent_classes=self.iou_absent_classes,
        )
        # Formula -> term -> (whether it counts, how it is computed)
        formulas: dict[str, dict[str, tuple[bool, LossTerm]]] = {
            "unet3p_hybrid": {
                "focal": (self.focal_enabled, focal),
                "ms_ssim": (self.ms_ssim_enabled, ms_ssim),
                "iou": (self.iou_enabled, iou),
            },
            "reference": {
                "focal": (self.focal_enabled, reference_focal_loss),
                "ssim": (self.ms_ssim_enabled, reference_ssim_loss),
                "iou": (self.iou_enabled, reference_iou_loss),
            },
        }
        if self.type not in formulas:
            raise ValueError(f"expected type to be one of {list(formulas)}, received {self.type!r}")
        terms = {name: term for name, (counts, term) in formulas[self.type].items() if counts}
        if not terms:
            raise ValueError(f"expected at least one enabled term, received {self}")
        return terms


def loss_settings(cfg: DictConfig) -> LossSettings:
    """The section `LOSS` of the configuration as plain settings."""
    loss = cfg.LOSS
    return LossSettings(
        type=str(loss.TYPE),
        focal_enabled=loss.FOCAL.ENABLED,
        focal_gamma=loss.FOCAL.GAMMA,
        focal_alpha=loss.FOCAL.ALPHA,
        ms_ssim_enabled=loss.MS_SSIM.ENABLED,
        iou_enabled=loss.IOU.ENABLED,
        iou_smooth=loss.IOU.SMOOTH,
        iou_absent_classes=loss.IOU.ABSENT_CLASSES,
        include_background=loss.INCLUDE_BACKGROUND,
    )


@keras.saving.register_keras_serializable(package="unet3plus")
class SegmentationLoss(keras.losses.Loss):
    """The sum of the enabled terms (Huang et al. 2020, equal weights), one value per sample.

    Takes one-hot targets and probabilities of shape (batch, height, width, classes). `call` returns
    (batch,) in float32, which Keras weights, averages and scales to the number of replicas. A
    perfect prediction, also of an empty slice, costs 0.

    Args:
        settings: The terms and their parameters.
        name: "unet3p_hybrid_loss" or "reference_loss" unless given.
        reduction: As in every Keras loss.
    """

    def __init__(
        self,
        settings: LossSettings | None = None,
        name: str | None = None,
        reduction: str = "sum_over_batch_size",
    ):
        self.settings = settings or LossSettings()
        self.terms = self.settings.terms()
        super().__init__(name or f"{self.settings.type}_loss", reduction, dtype="float32")

    def call(self, y_true: KerasTensor, y_pred: KerasTensor) -> KerasTensor:
        """The loss of every sample, (batch,)."""
        return sum(term(y_true, y_pred) for term in self.terms.values())

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as plain values."""
        return {**super().get_config(), "settings": asdict(self.settings)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SegmentationLoss":
        """The loss that gave `config`."""
        return cls(**{**config, "settings": LossSettings(**config["settings"])})


@keras.saving.register_keras_serializable(package="unet3plus")
def unet3p_hybrid_loss(y_true: KerasTensor, y_pred: KerasTensor) -> KerasTensor:
    """Focal + MS-SSIM + IoU with their default parameters, one value per sample, (batch,)."""
    return SegmentationLoss().call(y_true, y_pred)


@keras.saving.register_keras_serializable(package="unet3plus")
def presence_loss(y_true: KerasTensor, y_pred: KerasTensor) -> KerasTensor:
    """Binary cross entropy of the classification-guided module, one value per sample, (batch,).

    The mean over both outputs, float32, from 0 to 16.1 as probabilities are clipped to
    [1e-7, 1 - 1e-7].

    Args:
        y_true: (batch, 2), one-hot [absent, present].
        y_pred: (batch, 2), the sigmoid probabilities of the two.
    """
    return keras.losses.binary_crossentropy(
        ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
    )

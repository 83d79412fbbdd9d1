"""From a pair of files to the arrays the network takes: the same for training and prediction."""

from dataclasses import dataclass

import numpy as np
from omegaconf import DictConfig

from utils.errors import UserError
from utils.images import read_image, read_mask, resize_image, resize_mask, to_class_ids
from utils.slice_files import SlicePair


@dataclass(frozen=True)
class SliceReader:
    """How slices are read.

    Attributes:
        height, width, channels: the network's input, px.
        classes: class ids must lie below it (0 and 1 when there is one class).
        resize: bring slices of other sizes to height x width; otherwise they are refused.
        normalize_value: divisor of mask values, None for masks that hold class ids already.
    """

    height: int
    width: int
    channels: int
    classes: int
    resize: bool = False
    normalize_value: int | None = None

    def read(
        self, pair: SlicePair, image_out: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Image, float32 in [0, 1] of shape (height, width, channels), and mask, uint8 class ids.

        Without a mask file the mask is all background. The image is written into `image_out` where
        that is given, which saves a copy.

        Raises:
            UserError: names the file that cannot be read or does not fit.
        """
        image = self._fit(pair, read_image(pair.image, self.channels), resize_image)
        if pair.mask is None:
            return normalize(image, image_out), np.zeros(image.shape[:2], np.uint8)
        ids = to_class_ids(read_mask(pair.mask), self.classes, self.normalize_value, pair.mask)
        return normalize(image, image_out), self._fit(pair, ids, resize_mask)

    def _fit(self, pair: SlicePair, array: np.ndarray, resize) -> np.ndarray:
        if array.shape[:2] == (self.height, self.width):
            return array
        if self.resize:
            return resize(array, self.height, self.width)
        raise UserError(
            f"{pair.image}: found {array.shape[0]} x {array.shape[1]} px; expected "
            f"INPUT.HEIGHT={self.height} x INPUT.WIDTH={self.width}, or "
            "PREPROCESS_DATA.RESIZE.VALUE=True"
        )


def normalize(image: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Grey values 0 … 255 as float32 in [0, 1], in `out` where that is given."""
    return np.divide(image, np.float32(255), out=out, dtype=np.float32)


def slice_reader(cfg: DictConfig) -> SliceReader:
    """The reader that the configuration describes."""
    settings = cfg.PREPROCESS_DATA
    return SliceReader(
        cfg.INPUT.HEIGHT,
        cfg.INPUT.WIDTH,
        cfg.INPUT.CHANNELS,
        cfg.OUTPUT.CLASSES,
        settings.RESIZE.VALUE,
        settings.NORMALIZE_MASK.NORMALIZE_VALUE if settings.NORMALIZE_MASK.VALUE else None,
    )

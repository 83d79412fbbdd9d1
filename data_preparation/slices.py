"""From HU to what the network sees: window, size, three neighbouring slices; and back for masks.

Preparation and prediction on scans both go through these functions, so a slice looks the same to
the network wherever it comes from.
"""

from dataclasses import dataclass

import numpy as np
from omegaconf import DictConfig

from data_preparation.scans import Scan
from utils.images import resize_image, resize_mask


@dataclass(frozen=True)
class SliceSettings:
    """How a slice is drawn: size in px, HU window, and `fit`, one of resize and crop."""

    height: int
    width: int
    hu_min: float
    hu_max: float
    fit: str


def slice_settings(cfg: DictConfig) -> SliceSettings:
    """The settings in `DATA_PREPARATION`."""
    keys = cfg.DATA_PREPARATION
    return SliceSettings(
        height=keys.RESIZED_HEIGHT,
        width=keys.RESIZED_WIDTH,
        hu_min=keys.SCAN_MIN_VALUE,
        hu_max=keys.SCAN_MAX_VALUE,
        fit=str(keys.FIT),
    )


def grey_slices(scan: Scan, settings: SliceSettings) -> np.ndarray:
    """Every slice of `scan` in grey, uint8 of shape (slices, height, width)."""
    grey = np.empty((len(scan), settings.height, settings.width), np.uint8)
    for index in range(len(scan)):
        grey[index] = grey_slice(scan.values(index), settings)
    return grey


def grey_slice(hu: np.ndarray, settings: SliceSettings) -> np.ndarray:
    """One slice in grey, uint8 of shape (height, width).

    HU are clipped to the window before anything interpolates them, so that metal and padding do
    not bleed into tissue, and the window maps to 0…255 the same way in every slice.
    """
    clipped = np.clip(hu, np.float32(settings.hu_min), np.float32(settings.hu_max))
    share = (clipped - settings.hu_min) / (settings.hu_max - settings.hu_min)
    return np.rint(fit_image(share * 255, settings)).astype(np.uint8)


def three_slices(grey: np.ndarray, index: int) -> np.ndarray:
    """Slices below, at and above `index` as R, G and B, uint8 of shape (height, width, 3).

    The ends of the scan repeat. `grey` has shape (slices, height, width).
    """
    neighbours = np.clip([index - 1, index, index + 1], 0, len(grey) - 1)
    return np.stack(grey[neighbours], axis=-1)


def fit_image(image: np.ndarray, settings: SliceSettings) -> np.ndarray:
    """`image` (rows, columns) at the settings' size; `crop` pads a smaller one with 0."""
    if settings.fit == "crop":
        return _crop_or_pad(image, settings.height, settings.width)
    return resize_image(image, settings.height, settings.width)


def fit_mask(mask: np.ndarray, settings: SliceSettings) -> np.ndarray:
    """`mask` (rows, columns) on the grid of `fit_image`, by nearest neighbour."""
    if settings.fit == "crop":
        return _crop_or_pad(mask, settings.height, settings.width)
    return resize_mask(mask, settings.height, settings.width)


def unfit_mask(mask: np.ndarray, rows: int, columns: int, fit: str) -> np.ndarray:
    """A mask of the network's size back at a scan's `rows` x `columns`: `fit_mask` undone.

    What `crop` has cut away becomes background.
    """
    if fit == "crop":
        return _crop_or_pad(mask, rows, columns)
    return resize_mask(mask, rows, columns)


def _crop_or_pad(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """`image` centred in a frame of zeros, `height` x `width`, and cut where it is larger.

    Cropping and padding round the offset the same way, so that either undoes the other.
    """
    frame = np.zeros((height, width), image.dtype)
    inside, outside = zip(
        _overlap(height, image.shape[0]), _overlap(width, image.shape[1]), strict=True
    )
    frame[inside] = image[outside]
    return frame


def _overlap(frame: int, size: int) -> tuple[slice, slice]:
    """Where `frame` and `size` px on one centre overlap, in the frame's and in the image's px."""
    length = min(frame, size)
    starts = (frame - length) // 2, (size - length) // 2
    return tuple(slice(start, start + length) for start in starts)

"""Random changes applied by OpenCV, for the TF generator and the preview."""

import cv2
import numpy as np

from data_generators.augmentation import SliceChange


def change_slice(
    image: np.ndarray, mask: np.ndarray, change: SliceChange
) -> tuple[np.ndarray, np.ndarray]:
    """Image (height, width, channels), float32 in [0, 1], and mask (height, width), changed.

    Masks take the nearest pixel, so that no class appears which was not there, and images are
    interpolated linearly. Both see grey 0 and class 0 outside.
    """
    x, y = change.positions(*mask.shape)
    mask = cv2.remap(mask, x, y, cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT)
    moved = cv2.remap(image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
    moved = moved.reshape(image.shape)  # OpenCV drops the axis of a single channel
    changed: np.ndarray = moved * np.float32(change.gain)
    changed += np.float32(change.offset)
    if change.blur:
        blurred = cv2.GaussianBlur(changed, _window(change.blur), change.blur)
        changed = blurred.reshape(image.shape)
    if change.noise:
        cv2.setRNGSeed(change.noise_seed)  # of this thread; five times as fast as numpy's
        noise = np.empty((len(mask), image[0].size), np.float32)
        cv2.randn(noise, np.zeros(1), np.full(1, change.noise))
        changed += noise.reshape(image.shape)
    np.clip(changed, 0, 1, out=changed)
    np.copyto(changed, 0, where=moved == 0)
    return changed, mask


def _window(sigma: float) -> tuple[int, int]:
    """The window that DALI, too, takes for a Gaussian: three standard deviations either way."""
    size = 2 * int(np.ceil(3 * sigma)) + 1
    return size, size

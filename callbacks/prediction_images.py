"""Pictures of a few fixed slices in TensorBoard: what the network sees in them, epoch by epoch."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from utils.contour_picture import contour_picture
from utils.images import case_and_slice
from utils.paths import natural_key
from utils.slice_files import SlicePair

PROBED = 16  # slices of a case that are looked at for foreground
_SIZE = 512  # px


class ShownSlice(NamedTuple):
    """A slice: its image as the network takes it, (H, W, C) from 0 to 1, and class ids, (H, W)."""

    name: str
    image: np.ndarray
    mask: np.ndarray


class PredictionImages(keras.callbacks.Callback):
    """Writes the outlines of truth and prediction after every epoch.

    Args:
        folder: for TensorBoard, of a run of its own.
        slices: what to show.
        predict: class ids, (B, H, W), that a model gives for images, (B, H, W, C).
    """

    def __init__(
        self,
        folder: Path,
        slices: Sequence[ShownSlice],
        predict: Callable[[keras.Model, np.ndarray], np.ndarray],
    ):
        super().__init__()
        self._slices, self._predict = slices, predict
        self._writer = tf.summary.create_file_writer(str(folder))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Predict and draw."""
        images = np.stack([shown.image for shown in self._slices])
        predictions = self._predict(self.model, images)
        with self._writer.as_default():
            for shown, prediction in zip(self._slices, predictions, strict=True):
                middle = shown.image[..., shown.image.shape[-1] // 2]
                grey = np.rint(middle * 255).astype(np.uint8)
                picture = contour_picture(grey, shown.mask, prediction, _SIZE)
                tf.summary.image(shown.name, picture[None], step=epoch)
        self._writer.flush()


def choose_slices(
    pairs: Sequence[SlicePair],
    count: int,
    read: Callable[[SlicePair], tuple[np.ndarray, np.ndarray]],
) -> list[ShownSlice]:
    """The slices with most foreground, spread over cases that lie evenly in the list.

    Args:
        pairs: the files; at most `PROBED` of a case are read, evenly spaced.
        count: how many to choose, where there are as many.
        read: image and class ids of a pair.
    """
    cases = defaultdict(list)
    for pair in pairs:
        cases[case_and_slice(pair.image)[0]].append(pair)
    names = sorted(cases, key=natural_key)
    chosen = [names[i] for i in _evenly(len(names), count)]
    shown = []
    for position, name in enumerate(chosen):
        share = (count - position + len(chosen) - 1) // len(chosen)  # that many of this case
        probes = [cases[name][i] for i in _evenly(len(cases[name]), max(PROBED, share))]
        slices = [ShownSlice(pair.image.stem, *read(pair)) for pair in probes]
        slices.sort(key=lambda shown: np.count_nonzero(shown.mask), reverse=True)
        shown += slices[:share]
    return shown


def _evenly(length: int, count: int) -> list[int]:
    """At most `count` different indices below `length`, the middles of equal parts."""
    if count >= length:
        return list(range(length))
    return [int((i + 0.5) * length / count) for i in range(count)]

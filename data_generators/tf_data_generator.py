"""Slices as a Keras `PyDataset`."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np

from data_generators.epoch_order import EpochOrder
from data_generators.slice_reader import SliceReader
from utils.slice_files import SlicePair


class SliceSequence(keras.utils.PyDataset):
    """Batches of images (B, H, W, C), float32 in [0, 1], and masks (B, H, W), uint8 class ids.

    The order is that of `EpochOrder`: every slice once per epoch, in a new order each time when it
    shuffles; `start_epoch` sets the epoch. Slices of a batch are decoded by threads of our own (cv2
    releases the interpreter lock) and tf.data keeps batches ahead; Keras's own worker pool is left
    off because it hands left-over batches on to the next epoch.

    Args:
        pairs: the files.
        reader: turns a pair into arrays.
        order: which slices make up the batches.
        workers: threads that decode.
    """

    def __init__(
        self, pairs: Sequence[SlicePair], reader: SliceReader, order: EpochOrder, workers: int = 1
    ):
        super().__init__(workers=1, use_multiprocessing=False)
        self._pairs, self._reader, self._order = pairs, reader, order
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="slice_reader")
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        """Set the order of `epoch`; call it before the epoch's first batch."""
        self._positions = self._order.positions(epoch)

    def __len__(self) -> int:
        """Batches per epoch."""
        return self._order.steps

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Batch `index` of the current epoch."""
        images, masks = zip(
            *self._pool.map(self._reader.read, self.batch_pairs(index)), strict=True
        )
        return np.stack(images), np.stack(masks)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The batches of the current epoch, each read while the one before is in use."""
        with ThreadPoolExecutor(1, thread_name_prefix="batch_ahead") as ahead:
            upcoming = ahead.submit(self.__getitem__, 0)
            for index in range(1, len(self) + 1):
                batch = upcoming.result()
                if index < len(self):
                    upcoming = ahead.submit(self.__getitem__, index)
                yield batch

    def batch_pairs(self, index: int) -> list[SlicePair]:
        """The files of batch `index` in the current epoch."""
        size = self._order.batch_size
        positions = self._positions[index * size : (index + 1) * size]
        return [self._pairs[position] for position in positions]

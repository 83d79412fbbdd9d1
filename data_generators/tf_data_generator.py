"""Slices as a Keras `PyDataset`."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np

from data_generators.slice_reader import SliceReader
from utils.slice_files import SlicePair


class SliceSequence(keras.utils.PyDataset):
    """Batches of images (B, H, W, C), float32 in [0, 1], and masks (B, H, W), uint8 class ids.

    The order is a pure function of `seed` and the epoch (`start_epoch`): every slice once per
    epoch, in a new order each time when `shuffle` is on. Slices of a batch are decoded by threads
    of our own (cv2 releases the interpreter lock) and tf.data keeps batches ahead; Keras's own
    worker pool is left off because it hands left-over batches on to the next epoch.

    Args:
        pairs: the files.
        reader: turns a pair into arrays.
        batch_size: the global batch, in slices.
        steps: batches per epoch; None = as many as the slices fill. When it asks for more than
            there are, a further shuffled round of all slices follows.
        full_batches: leave out the slices that do not fill a batch (they differ from epoch to
            epoch); otherwise the last batch may be smaller.
        shuffle: whether the order changes from epoch to epoch.
        seed: of the order.
        workers: threads that decode.
    """

    def __init__(
        self,
        pairs: Sequence[SlicePair],
        reader: SliceReader,
        batch_size: int,
        steps: int | None = None,
        full_batches: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        workers: int = 1,
    ):
        super().__init__(workers=1, use_multiprocessing=False)
        self._pairs, self._reader, self._batch_size = pairs, reader, batch_size
        self._shuffle, self._seed = shuffle, seed
        available = len(pairs) / batch_size
        self._steps = steps or (math.floor(available) if full_batches else math.ceil(available))
        # Every slice once, unless `steps` asks for more or less
        self._slices = steps * batch_size if steps else len(pairs)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="slice_reader")
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        """Set the order of `epoch`; call it before the epoch's first batch."""
        count = len(self._pairs)
        rounds = [
            np.random.default_rng([self._seed, epoch, repeat]).permutation(count)
            if self._shuffle
            else np.arange(count)
            for repeat in range(math.ceil(self._slices / count))
        ]
        self._order = np.concatenate(rounds)[: self._slices]

    def __len__(self) -> int:
        """Batches per epoch."""
        return self._steps

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
        positions = self._order[index * self._batch_size : (index + 1) * self._batch_size]
        return [self._pairs[position] for position in positions]

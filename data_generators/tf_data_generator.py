"""Slices as a Keras `PyDataset`, which also makes the data set that `fit` takes."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import tee
from typing import NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from data_generators.augmentation import Augmentation
from data_generators.change_slice import change_slice
from data_generators.epoch_order import EpochOrder, Share
from data_generators.slice_reader import SliceReader
from utils.runtime import Runtime
from utils.slice_files import SlicePair


class _StartedBatch(NamedTuple):
    """Arrays that `jobs` are filling."""

    images: np.ndarray
    masks: np.ndarray
    jobs: list[Future]

    def wait(self) -> tuple[np.ndarray, np.ndarray]:
        """Images and masks when all are there; raises what a job has raised."""
        for job in self.jobs:
            job.result()
        return self.images, self.masks


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
        augmentation: changes slices at random; None leaves them as they are.
    """

    def __init__(
        self,
        pairs: Sequence[SlicePair],
        reader: SliceReader,
        order: EpochOrder,
        workers: int = 1,
        augmentation: Augmentation | None = None,
    ):
        super().__init__(workers=1, use_multiprocessing=False)
        self._pairs, self._reader, self._order = pairs, reader, order
        self._augmentation = augmentation
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="slice_reader")
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        """Set the order of `epoch`; call it before the epoch's first batch.

        A data set by `distribute` begins with it if it is opened afterwards.
        """
        self._epoch, self._positions = epoch, self._order.positions(epoch)

    def __len__(self) -> int:
        """Batches per epoch."""
        return self._order.steps

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Batch `index` of the current epoch."""
        return self._start(self._batch(index)).wait()

    def _batch(self, index: int) -> Share:
        size = self._order.batch_size
        slices = self._positions[index * size : (index + 1) * size]
        return Share(self._epoch, index * size + np.arange(len(slices)), slices)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The batches of the current epoch."""
        return self._read(self._batch(index) for index in range(len(self)))

    def _read(self, shares: Iterable[Share]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The arrays of batch after batch, each read while the one before is in use."""
        started: deque[_StartedBatch] = deque()
        for share in shares:
            started.append(self._start(share))
            if len(started) > 1:
                yield started.popleft().wait()
        for batch in started:
            yield batch.wait()

    def _start(self, share: Share) -> _StartedBatch:
        """Let the threads read a batch, each slice right into its place."""
        size = (len(share.slices), self._reader.height, self._reader.width)
        images = _aligned_array((*size, self._reader.channels), np.float32)
        masks = _aligned_array(size, np.uint8)

        def read(row: int, place: int, position: int) -> None:
            image, masks[row] = self._reader.read(self._pairs[position], images[row])
            if self._augmentation is not None:
                change = self._augmentation.draw(share.epoch, place)
                images[row], masks[row] = change_slice(image, masks[row], change)

        rows = enumerate(zip(share.places.tolist(), share.slices.tolist(), strict=True))
        jobs = [self._pool.submit(read, row, *slice_at) for row, slice_at in rows]
        return _StartedBatch(images, masks, jobs)

    def batch_pairs(self, index: int) -> list[SlicePair]:
        """The files of batch `index` in the current epoch."""
        return [self._pairs[position] for position in self._batch(index).slices]

    def distribute(self, runtime: Runtime) -> tf.distribute.DistributedDataset:
        """The same batches, cut into equal parts for the replicas; endless, for `fit`.

        Keras cannot spread uneven batches over replicas, and averages the losses of single heads
        over batches of whatever size. Where an epoch does not fill its last batch, a slice is
        repeated and every batch comes with sample weights: 0 for the repetitions, and for the
        others so much above 1 that the weights of an epoch have the mean 1. A mean over all samples
        is then the mean over the real ones: each counts once in every loss and metric.
        """
        order, reader = self._order, self._reader
        slices, samples = len(self._positions), order.steps * order.batch_size
        weight = np.float32(samples / slices)
        batch = order.batch_size // runtime.replicas
        size = (batch, reader.height, reader.width)
        signature = [
            tf.TensorSpec((*size, reader.channels), tf.float32),
            tf.TensorSpec(size, tf.uint8),
            tf.TensorSpec((batch,), tf.float32),
        ]
        arrays = 2 if slices == samples else 3

        def share_of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            share = runtime.replicas // context.num_input_pipelines
            first = context.input_pipeline_id * share

            def batches() -> Iterator[tuple[np.ndarray, ...]]:
                mine = range(first, first + share)
                parts, ahead = tee(order.shares(mine, runtime.replicas, self._epoch))
                for part, batch in zip(parts, self._read(ahead), strict=True):
                    weights = np.where(part.slices < 0, np.float32(0), weight)
                    yield (*batch, weights)[:arrays]

            return tf.data.Dataset.from_generator(
                batches, output_signature=tuple(signature[:arrays])
            ).prefetch(2 * share)  # AUTOTUNE's buffer grows to dozens of batches

        return runtime.strategy.distribute_datasets_from_function(share_of_worker)


def _aligned_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """An empty array that begins at a multiple of 64 bytes, as TensorFlow's tensors do.

    TensorFlow takes such an array over as it is and copies any other.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)

"""Slices as a Keras `PyDataset`, which also makes the data set that `fit` takes."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import tee
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from data_generators.epoch_order import EpochOrder
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
    """

    def __init__(
        self, pairs: Sequence[SlicePair], reader: SliceReader, order: EpochOrder, workers: int = 1
    ):
        super().__init__(workers=1, use_multiprocessing=False)
        self._pairs, self._reader, self._order = pairs, reader, order
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
        return self._start(self.batch_pairs(index)).wait()

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The batches of the current epoch."""
        return self._read(self.batch_pairs(index) for index in range(len(self)))

    def _read(
        self, batches: Iterable[Sequence[SlicePair]]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The arrays of batch after batch, each read while the one before is in use."""
        started = deque()
        for pairs in batches:
            started.append(self._start(pairs))
            if len(started) > 1:
                yield started.popleft().wait()
        for batch in started:
            yield batch.wait()

    def _start(self, pairs: Sequence[SlicePair]) -> "_StartedBatch":
        """Let the threads read a batch, each slice right into its place."""
        size = (len(pairs), self._reader.height, self._reader.width)
        images = np.empty((*size, self._reader.channels), np.float32)
        masks = np.empty(size, np.uint8)

        def read(position: int) -> None:
            images[position], masks[position] = self._reader.read(pairs[position])

        jobs = [self._pool.submit(read, position) for position in range(len(pairs))]
        return _StartedBatch(images, masks, jobs)

    def batch_pairs(self, index: int) -> list[SlicePair]:
        """The files of batch `index` in the current epoch."""
        size = self._order.batch_size
        positions = self._positions[index * size : (index + 1) * size]
        return [self._pairs[position] for position in positions]

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
                read = self._read([self._pairs[i] for i in part] for part in ahead)
                for part, batch in zip(parts, read, strict=True):
                    yield (*batch, np.where(part < 0, np.float32(0), weight))[:arrays]

            return tf.data.Dataset.from_generator(
                batches, output_signature=tuple(signature[:arrays])
            ).prefetch(tf.data.AUTOTUNE)

        return runtime.strategy.distribute_datasets_from_function(share_of_worker)

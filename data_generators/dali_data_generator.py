"""Training slices by NVIDIA DALI: one pipeline for the CPU, for any number of GPUs and machines.

The batches are those of the TF generator, slice by slice: the order comes from `EpochOrder`, as
file names that are fed into the pipeline. DALI's own file readers would keep image and mask in step
too, but their shuffling cannot be started at a given epoch, so that a resumed run would see other
batches; and it would depend on the number of replicas. With names as input an image and its mask
travel in one array and cannot be parted, the order is a function of seed and epoch, N replicas see
what one would, and memory holds nothing but the names and a few batches.

`nvidia.dali` is imported inside the functions, so that the project runs without it.
"""

import os
from collections.abc import Iterator, Sequence
from types import ModuleType

import numpy as np
import tensorflow as tf

from data_generators.epoch_order import EpochOrder
from data_generators.slice_reader import SliceReader
from utils.errors import UserError
from utils.runtime import Runtime
from utils.slice_files import SlicePair

INSTALL = "bash data_generators/install_dali.sh"
_INPUT = "paths"


def import_dali() -> ModuleType:
    """The TensorFlow plugin of DALI.

    Raises:
        UserError: it is not installed, or does not load; gives the command that installs it.
    """
    try:
        import nvidia.dali.plugin.tf as plugin
    except Exception as error:  # a plugin of another TensorFlow fails in ways of its own
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(
            f"DATA_GENERATOR_TYPE: NVIDIA DALI with its TensorFlow plugin cannot be used ({reason})"
            f"; install it by '{INSTALL}', or use DATA_GENERATOR_TYPE=TF_GENERATOR"
        ) from error
    return plugin


class PathStream:
    """The file names of batch after batch, epoch after epoch, without an end.

    Args:
        pairs: the files.
        order: which of them make up the batches; full batches only.
    """

    def __init__(self, pairs: Sequence[SlicePair], order: EpochOrder):
        self._order, self._first_epoch = order, 0
        names = [[os.fsencode(path.absolute()) for path in pair] for pair in pairs]
        length = max(len(name) for pair in names for name in pair)
        # More slashes at the front bring names to one length and change no path
        equal = np.array([[name.rjust(length, b"/") for name in pair] for pair in names])
        self._names = equal.view(np.uint8).reshape(len(names), 2, length)

    @property
    def name_length(self) -> int:
        """Characters of the longest name."""
        return self._names.shape[-1]

    def start_epoch(self, epoch: int) -> None:
        """Set the epoch with which streams begin that are opened from now on.

        A stream that is open already goes on by itself from one epoch to the next.
        """
        self._first_epoch = epoch

    def batches(self, mine: range, replicas: int) -> Iterator[np.ndarray]:
        """Names of images and masks, uint8 of shape (B, 2, characters), B slices per replica.

        See `EpochOrder.shares`.
        """
        for part in self._order.shares(mine, replicas, self._first_epoch):
            yield self._names[part]


def slice_pipeline(reader: SliceReader, batch_size: int, threads: int, device_id: int | None):
    """The DALI pipeline that turns names into the arrays of `reader`.

    Images are float32 in [0, 1] of shape (B, H, W, C), channels R, G, B, masks are class ids, uint8
    of shape (B, H, W). PNG is decoded by the CPU; with a GPU the rest happens there. Without
    resizing the values are those of `SliceReader`. With it, DALI's antialiased linear filter stands
    for cv2's: enlarged images differ by at most one grey level (1/255); shrunk ones by two where
    the image is smooth, by more in noise, where cv2 averages over a narrower area. Masks take the
    nearest pixel, centres aligned, and differ only where two are equally near.

    Args:
        reader: size, channels, and what masks are divided by.
        batch_size: slices of a batch.
        threads: of the CPU.
        device_id: CUDA's number of the GPU, None for the CPU.
    """
    from nvidia.dali import fn, pipeline_def, types

    def decode(path, output_type, interpolation):
        content = fn.io.file.read(path)
        array = fn.decoders.image(
            content, device="cpu", output_type=output_type, adjust_orientation=False
        )
        if device_id is not None:
            array = array.gpu()
        if reader.resize:
            size = [reader.height, reader.width]
            array = fn.resize(array, size=size, interp_type=interpolation, antialias=True)
        return array

    @pipeline_def(batch_size=batch_size, num_threads=threads, device_id=device_id)
    def pipeline():
        paths = fn.external_source(name=_INPUT, dtype=types.UINT8, ndim=2)
        colours = types.RGB if reader.channels == 3 else types.GRAY
        image = decode(paths[0], colours, types.INTERP_LINEAR)
        mask = fn.squeeze(decode(paths[1], types.GRAY, types.INTERP_NN), axes=[2])
        if reader.normalize_value is not None:
            mask = fn.cast(mask // reader.normalize_value, dtype=types.UINT8)
        return fn.cast(image, dtype=types.FLOAT) / 255.0, mask

    return pipeline()


def dali_dataset(
    stream: PathStream, reader: SliceReader, batch_size: int, runtime: Runtime, threads: int
) -> tf.data.Dataset:
    """An endless data set of (images, masks) for `fit`, which must be told the steps per epoch.

    On one machine every replica has a pipeline of its own, on its device. A strategy over several
    machines takes one data set from each: a pipeline on the CPU, from which TensorFlow copies batch
    after batch to the machine's replicas in turn.

    Args:
        stream: the names.
        reader: what the arrays are like.
        batch_size: slices per replica.
        runtime: the devices.
        threads: of every pipeline.

    Raises:
        UserError: DALI is not installed.
    """
    plugin = import_dali()
    is_local = runtime.strategy.cluster_resolver is None
    on_gpu = is_local and runtime.devices[0].startswith("GPU")

    def pipeline_dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        share = runtime.replicas // context.num_input_pipelines
        first = context.input_pipeline_id * share
        # TensorFlow numbers the devices in use, CUDA all of them
        device = f"/{'gpu' if on_gpu else 'cpu'}:{first if is_local else 0}"
        device_id = int(runtime.devices[first].rpartition(":")[2]) if on_gpu else None
        mine = range(first, first + share)
        names = _names_dataset(stream, mine, runtime.replicas, batch_size, device)
        shape = (batch_size, reader.height, reader.width)
        with tf.device(device):
            return plugin.experimental.DALIDatasetWithInputs(
                slice_pipeline(reader, batch_size, threads, device_id),
                input_datasets={_INPUT: plugin.experimental.Input(names, batch=True)},
                output_dtypes=(tf.float32, tf.uint8),
                output_shapes=((*shape, reader.channels), shape),
                batch_size=batch_size,
                num_threads=threads,
                device_id=device_id,
            )

    per_replica = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_place_dataset_on_device=True,
        experimental_fetch_to_device=False,
    )
    return runtime.strategy.distribute_datasets_from_function(
        pipeline_dataset, per_replica if is_local else None
    )


def _names_dataset(
    stream: PathStream, mine: range, replicas: int, batch_size: int, device: str
) -> tf.data.Dataset:
    """The names as a data set on `device`: the plugin wants its input beside the pipeline."""
    shape = (batch_size, 2, stream.name_length)
    with tf.device("/cpu:0"):
        return tf.data.Dataset.from_generator(
            lambda: stream.batches(mine, replicas), output_signature=tf.TensorSpec(shape, tf.uint8)
        ).apply(tf.data.experimental.copy_to_device(device))

"""The adapter that picks the generator and does the arithmetic of batches and steps once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from omegaconf import DictConfig

from data_generators.augmentation import augmentation
from data_generators.dali_data_generator import PathStream, dali_dataset, import_dali
from data_generators.dali_files import check_dali_files
from data_generators.epoch_order import EpochOrder
from data_generators.slice_reader import SliceReader, slice_reader
from data_generators.tf_data_generator import SliceSequence
from utils.case_split import TRAIN, VAL
from utils.errors import UserError
from utils.log import logger
from utils.runtime import Runtime
from utils.slice_files import SlicePair, list_split
from utils.slice_index import has_foreground


@dataclass(frozen=True)
class DataSplit:
    """The slices of a split, ready to be iterated.

    Attributes:
        dataset: a `SliceSequence` to iterate, or what `fit` takes on any number of replicas:
            equal batches of (image, mask), with sample weights where the slices do not fill them.
        steps: batches per epoch.
        steps_per_epoch: what `fit` must be told: `steps` where the data set has no end, or None.
        start_epoch: sets the epoch's order; to be called before its first batch.
        pairs: the files, in the order of the list.
        order: which of them make up the batches of an epoch.
        global_batch: slices per step over all replicas.
        generator: TF_GENERATOR or DALI_GENERATOR.
    """

    dataset: SliceSequence | tf.data.Dataset | tf.distribute.DistributedDataset
    steps: int
    steps_per_epoch: int | None
    start_epoch: Callable[[int], None]
    pairs: list[SlicePair]
    order: EpochOrder
    global_batch: int
    generator: str

    def pairs_of_step(self, epoch: int, step: int) -> list[SlicePair]:
        """The files of a batch; both numbers count from 0."""
        size = self.global_batch
        positions = self.order.positions(epoch)[step * size : (step + 1) * size]
        return [self.pairs[position] for position in positions]


def get_data_generator(
    cfg: DictConfig, mode: str, runtime: Runtime, for_fit: bool = False
) -> DataSplit:
    """The batches of `mode`, TRAIN, VAL or HELD_OUT (see `list_split`).

    Training takes full batches and shuffles by SEED and epoch, with the share of slices without
    foreground that `DATASET.TRAIN.EMPTY_SLICES` says; validation takes every slice once,
    its last batch being smaller if need be, or, for `fit`, padded with slices of no weight. DALI
    has full batches only, so that it serves training; validation always reads with the TF
    generator, which gives the same arrays.

    Raises:
        UserError: no slices, pairs that do not match, fewer slices than a training batch, or DALI
            was asked for and is not installed or cannot read the files.
    """
    pairs = list_split(cfg, mode)
    is_training = mode == TRAIN
    global_batch = cfg.HYPER_PARAMETERS.BATCH_SIZE * runtime.replicas
    order = EpochOrder(
        len(pairs),
        global_batch,
        cfg.HYPER_PARAMETERS.STEPS_PER_EPOCH if is_training else None,
        full_batches=is_training,
        shuffle=cfg.PREPROCESS_DATA.SHUFFLE[TRAIN if is_training else VAL].VALUE,
        seed=cfg.SEED,
        **(_empty_slices(cfg, pairs) if is_training else {}),
    )
    if is_training and order.available < global_batch:
        raise UserError(
            f"HYPER_PARAMETERS.BATCH_SIZE: found {global_batch} slices per step over "
            f"{runtime.replicas} replica(s), but training has only {order.available} slices"
        )
    reader, threads = slice_reader(cfg), cfg.DATALOADER_WORKERS
    change = augmentation(cfg) if is_training else None
    if is_training and _uses_dali(cfg, runtime, pairs, reader):
        stream = PathStream(pairs, order, change)
        dataset = dali_dataset(stream, reader, cfg.HYPER_PARAMETERS.BATCH_SIZE, runtime, threads)
        generator, start_epoch, steps_per_epoch = "DALI_GENERATOR", stream.start_epoch, order.steps
    else:
        dataset = sequence = SliceSequence(pairs, reader, order, threads, change)
        generator, start_epoch, steps_per_epoch = "TF_GENERATOR", sequence.start_epoch, None
        if for_fit:
            dataset, steps_per_epoch = sequence.distribute(runtime), order.steps
    return DataSplit(
        dataset, order.steps, steps_per_epoch, start_epoch, pairs, order, global_batch, generator
    )


def _empty_slices(cfg: DictConfig, pairs: Sequence[SlicePair]) -> dict[str, Any]:
    """What `EpochOrder` must know of slices without foreground; nothing where it takes all."""
    share = cfg.DATASET.TRAIN.EMPTY_SLICES
    if share == 1:
        return {}
    with_foreground = has_foreground(pairs, "Masks", cfg.VERBOSE)
    empty = np.flatnonzero(~with_foreground)
    if round(share * len(empty)) + with_foreground.sum() == 0:
        raise UserError(
            f"DATASET.TRAIN.EMPTY_SLICES: found {share:g}, but none of the {len(pairs)} slices has "
            "foreground, so that nothing is left to train on"
        )
    logger.info(
        f"DATASET.TRAIN.EMPTY_SLICES={share:g}: every epoch takes {round(share * len(empty))} of "
        f"{len(empty)} slices without foreground and all {with_foreground.sum()} others"
    )
    return {"empty": tuple(empty.tolist()), "empty_share": share}


def _uses_dali(
    cfg: DictConfig, runtime: Runtime, pairs: Sequence[SlicePair], reader: SliceReader
) -> bool:
    choice = cfg.DATA_GENERATOR_TYPE
    has_gpu = runtime.devices[0].startswith("GPU")
    if choice == "TF_GENERATOR" or (choice == "AUTO" and not has_gpu):
        return False
    if cfg.AUGMENTATION.ENABLED and cfg.AUGMENTATION.ELASTIC.AMPLITUDE:
        logger.info("DATA_GENERATOR_TYPE=AUTO: TF_GENERATOR, for the sake of AUGMENTATION.ELASTIC")
        return False
    try:
        import_dali()
        check_dali_files(pairs, reader)
    except UserError as error:
        if choice == "DALI_GENERATOR":
            raise
        logger.info(f"DATA_GENERATOR_TYPE=AUTO: TF_GENERATOR, since DALI is out: {error}")
        return False
    return True

"""The adapter that picks the generator and does the arithmetic of batches and steps once."""

from dataclasses import dataclass

from omegaconf import DictConfig

from data_generators.slice_reader import slice_reader
from data_generators.tf_data_generator import SliceSequence
from utils.errors import UserError
from utils.runtime import Runtime
from utils.slice_files import SlicePair, list_split


@dataclass(frozen=True)
class DataSplit:
    """The slices of TRAIN or VAL, ready to be iterated.

    Attributes:
        dataset: batches of (image, mask).
        steps: batches per epoch.
        pairs: the files, in the order of the list.
        global_batch: slices per step over all replicas.
    """

    dataset: SliceSequence
    steps: int
    pairs: list[SlicePair]
    global_batch: int


def get_data_generator(cfg: DictConfig, mode: str, runtime: Runtime) -> DataSplit:
    """The batches of `mode`, TRAIN or VAL.

    Training takes full batches and shuffles by SEED and epoch; validation takes every slice once,
    its last batch being smaller if need be.

    Raises:
        UserError: no slices, pairs that do not match, or fewer slices than a training batch.
    """
    if cfg.DATA_GENERATOR_TYPE == "DALI_GENERATOR":
        raise UserError(
            "DATA_GENERATOR_TYPE: found DALI_GENERATOR, which this version does not have yet; use "
            "TF_GENERATOR or AUTO"
        )
    pairs = list_split(cfg, mode)
    is_training = mode == "TRAIN"
    global_batch = cfg.HYPER_PARAMETERS.BATCH_SIZE * runtime.replicas
    if is_training and len(pairs) < global_batch:
        raise UserError(
            f"HYPER_PARAMETERS.BATCH_SIZE: found {global_batch} slices per step over "
            f"{runtime.replicas} replica(s), but DATASET.TRAIN has only {len(pairs)} slices"
        )
    dataset = SliceSequence(
        pairs,
        slice_reader(cfg),
        global_batch,
        steps=cfg.HYPER_PARAMETERS.STEPS_PER_EPOCH if is_training else None,
        full_batches=is_training,
        shuffle=cfg.PREPROCESS_DATA.SHUFFLE[mode].VALUE,
        seed=cfg.SEED,
        workers=cfg.DATALOADER_WORKERS,
    )
    return DataSplit(dataset, len(dataset), pairs, global_batch)

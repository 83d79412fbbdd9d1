"""Whether an interrupted run and the one that is to continue it are the same."""

import hashlib
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from utils.errors import UserError
from utils.log import logger
from utils.slice_files import SlicePair

# Sections and keys that decide what the state's numbers mean
_FIXED = ("MODEL.", "INPUT.", "OUTPUT.", "HYPER_PARAMETERS.OPTIMIZER", "HYPER_PARAMETERS.MOMENTUM",
          "HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE.TYPE", "HYPER_PARAMETERS.EMA",
          "HYPER_PARAMETERS.GRADIENT_ACCUMULATION")  # fmt: skip
# Those that say where things lie, how long to train, or what the fingerprints of the data decide
# (each name stands for all keys that begin with it, such as MODEL.WEIGHTS_FILE_NAME)
_FREE = ("MODEL.WEIGHTS", "MODEL.RESAMPLE", "WORK_DIR", "RESULTS_PATH", "RESUME",
         "VERBOSE", "HYPER_PARAMETERS.EPOCHS", "CALLBACKS.", "DATASET.TRAIN.IMAGES_PATH",
         "DATASET.TRAIN.MASK_PATH", "DATASET.VAL.", "DATASET.SPLIT.", "DATASET.ALLOW_SHARED_CASES",
         "DATA_PREPARATION.", "EVALUATION.", "PHANTOM.", "EXPORT.",
         "BENCHMARK_TRAINING.")  # fmt: skip
_EPOCHS, _SCHEDULE = "HYPER_PARAMETERS.EPOCHS", "HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE.TYPE"


def run_identity(
    cfg: DictConfig, precision: str, splits: dict[str, Sequence[SlicePair]]
) -> dict[str, Any]:
    """Configuration, precision and data set of a run, as plain values."""
    return {
        "config": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "precision": precision,
        "data": {name: _fingerprint(pairs) for name, pairs in splits.items()},
    }


def _fingerprint(pairs: Sequence[SlicePair]) -> dict[str, Any]:
    """Names and sizes of the files, in their order; the folder may be another one."""
    files = [(f.name, f.stat().st_size) for pair in pairs for f in pair if f is not None]
    return {"slices": len(pairs), "sha256": hashlib.sha256(repr(files).encode()).hexdigest()}


def refuse_other_run(saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Compare two identities; other changes than in `_FREE` are warned of.

    So is the number of epochs where the learning rate depends on it.

    Raises:
        UserError: model, class count, precision or data set are not those of the saved run.
    """
    before, now = _flat(saved["config"]), _flat(current["config"])
    free = [key for key in now if key.startswith(_FREE)]
    if now.get(_SCHEDULE, "constant") != "constant":
        free.remove(_EPOCHS)
    changed = [key for key in now if key in before and before[key] != now[key] and key not in free]
    problems = [
        f"{key}: found {now[key]!r}; the interrupted run has {before[key]!r}"
        for key in changed
        if key.startswith(_FIXED)
    ]
    if saved["precision"] != current["precision"]:
        problems.append(
            f"OPTIMIZATION.AMP: found {current['precision']}; the interrupted run trains in "
            f"{saved['precision']}"
        )
    problems += [
        f"DATASET.{name}: found {data['slices']} slices that are not the "
        f"{saved['data'][name]['slices']} of the interrupted run (names, sizes or order differ)"
        for name, data in current["data"].items()
        if data != saved["data"][name]
    ]
    if problems:
        title = "RESUME: this is not the run that was interrupted; undo the changes, or start anew"
        raise UserError.listing(f"{title} by RESUME=False", problems)
    others = [f"{k} {before[k]!r} -> {now[k]!r}" for k in changed if not k.startswith(_FIXED)]
    if others:
        logger.warning(f"RESUME: changed since the interruption: {', '.join(others)}")


def _flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"A.B": value} for {"A": {"B": value}}."""
    flat: dict[str, Any] = {}
    for key, value in section.items():
        is_section = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{key}.") if is_section else {f"{prefix}{key}": value}
    return flat

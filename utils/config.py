"""From the composed YAML to a checked, typed, read-only configuration."""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any, get_args

from hydra.utils import to_absolute_path
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from configs import CONFIG_DIR
from configs.schema import Config, ExportFormat
from utils.case_split import is_carved, split_problems
from utils.errors import UserError
from utils.paths import LEGACY_SUFFIXES, WEIGHTS_SUFFIX

LEVELS = 5  # encoder levels of UNet 3+, and heads under deep supervision
STRIDE = 2 ** (LEVELS - 1)  # of the deepest level
IMAGENET_FILTERS = [64, 128, 256, 512]  # channels of the VGG networks, the last one twice


def validate_config(cfg: DictConfig | dict) -> DictConfig:
    """The configuration merged onto the schema, with defaults where `cfg` is silent.

    `cfg` may be what Hydra composed, or any part of it (a notebook may give MODEL, INPUT and OUTPUT
    only). A configuration that has been through here before is returned unchanged.

    Raises:
        UserError: lists every unknown key, wrong type, value out of range and broken rule at once.
    """
    if OmegaConf.is_config(cfg) and OmegaConf.get_type(cfg) is Config:
        return cfg
    try:
        composed = OmegaConf.unsafe_merge(_yaml_defaults(), cfg)
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(f"The configuration cannot be resolved: {error}") from None
    for key in ("hydra", "defaults"):
        plain.pop(key, None)

    typed = OmegaConf.structured(Config)
    problems = list(_assign(typed, Config, plain))
    for rule in _RULES:
        try:
            problems.extend(rule(typed))
        except MissingMandatoryValue:
            continue  # a key that the rule needs has been reported already
    if problems:
        raise UserError.listing("The configuration has problems", problems)
    typed.WORK_DIR = to_absolute_path(typed.WORK_DIR)
    OmegaConf.set_readonly(typed, True)
    return typed


def uses_imagenet(cfg: DictConfig) -> bool:
    """Whether the encoder has ImageNet weights: any, downloaded or a file, but our own."""
    weights = cfg.MODEL.BACKBONE.WEIGHTS
    return weights is not None and not weights.endswith(WEIGHTS_SUFFIX)


def _yaml_defaults() -> DictConfig:
    return OmegaConf.load(CONFIG_DIR / "config.yaml")


def _assign(section: DictConfig, schema: Any, values: Any, prefix: str = "") -> Iterator[str]:
    """Set `values` on `section` key by key, yielding a sentence for each that does not fit."""
    if not isinstance(values, dict):
        yield f"{prefix.rstrip('.')}: found {values!r}; expected a section with keys"
        return
    known = {entry.name: entry for entry in fields(schema)}
    for key, value in values.items():
        if key not in known:
            yield f"{prefix}{key}: unknown key{_did_you_mean(prefix + str(key), _all_keys())}"
        elif is_dataclass(known[key].type):
            yield from _assign(section[key], known[key].type, value, f"{prefix}{key}.")
        else:
            yield from _assign_value(section, known[key], value, prefix + key)


def _assign_value(section: DictConfig, entry: Field, value: Any, key: str) -> Iterator[str]:
    choices = entry.metadata.get("choices") or [
        str(choice) for choice in (entry.type if hasattr(entry.type, "__members__") else ())
    ]
    if choices and not any(type(value) is type(c) and value == c for c in choices):
        hint = _did_you_mean(str(value), [str(choice) for choice in choices])
        yield f"{key}: found {value!r}; choices: {', '.join(map(str, choices))}{hint}"
        return
    if value in ("None", "none") and not choices:  # what people write for YAML's null
        value = None
    if isinstance(value, dict):
        # Case ids that look like numbers are still names
        value = {str(name): item for name, item in value.items()}
    low, high = entry.metadata.get("range", (None, None))
    try:
        section[entry.name] = value
        stored = section[entry.name]
    except OmegaConfBaseException:
        yield f"{key}: found {value!r}; expected {_type_in_words(entry.type)}"
        return
    if low is not None and stored is not None:
        numbers = stored if OmegaConf.is_list(stored) else [stored]
        if not all(low <= number <= high for number in numbers):
            limit = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
            section[entry.name] = "???"
            yield f"{key}: found {value!r}; expected {limit}"


def _type_in_words(kind: Any) -> str:
    items = [getattr(item, "__members__", None) for item in get_args(kind)]
    if items and items[0]:
        return f"a list of {', '.join(items[0])}"
    return kind.__name__ if type(kind) is type else str(kind)


def _all_keys(schema: Any = Config, prefix: str = "") -> list[str]:
    keys = []
    for entry in fields(schema):
        keys.append(prefix + entry.name)
        if is_dataclass(entry.type):
            keys.extend(_all_keys(entry.type, f"{prefix}{entry.name}."))
    return keys


def _did_you_mean(word: str, candidates: list[str]) -> str:
    for candidate in candidates:  # the right name in the wrong section
        if candidate.lower().endswith("." + word.lower().rsplit(".", 1)[-1]):
            return f"; did you mean {candidate}?"
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _sizes(cfg: DictConfig) -> Iterator[str]:
    for side in ("HEIGHT", "WIDTH"):
        size = cfg.INPUT[side]
        if size % STRIDE:
            below = max(size // STRIDE, 1) * STRIDE
            yield (
                f"INPUT.{side}: found {size}; the network halves its input four times, so it must "
                f"be a multiple of {STRIDE}: {below} or {below + STRIDE}"
            )
        if cfg.PREPROCESS_DATA.RESIZE.VALUE and cfg.PREPROCESS_DATA.RESIZE[side] != size:
            yield (
                f"PREPROCESS_DATA.RESIZE.{side}: found {cfg.PREPROCESS_DATA.RESIZE[side]}; the "
                f"network takes INPUT.{side}={size}, so the two must be equal"
            )


def _lengths(cfg: DictConfig) -> Iterator[str]:
    for key, what in (
        ("MODEL.FILTERS", "one number per encoder level"),
        ("LOSS.DEEP_SUPERVISION_WEIGHTS", "one number per head: d1, d2, d3, d4, e5"),
    ):
        values = OmegaConf.select(cfg, key, throw_on_missing=True)
        if len(values) != LEVELS:
            yield f"{key}: found {len(values)} values; expected {LEVELS}, {what}"


def _labels(cfg: DictConfig) -> Iterator[str]:
    if cfg.DATA_PREPARATION.LABELS == "liver_and_tumour" and cfg.OUTPUT.CLASSES < 3:
        yield (
            f"OUTPUT.CLASSES: found {cfg.OUTPUT.CLASSES}; DATA_PREPARATION.LABELS=liver_and_tumour "
            "gives masks of background, liver and tumour, which need OUTPUT.CLASSES=3"
        )


def _hu_window(cfg: DictConfig) -> Iterator[str]:
    low, high = cfg.DATA_PREPARATION.SCAN_MIN_VALUE, cfg.DATA_PREPARATION.SCAN_MAX_VALUE
    if not low < high:
        yield (
            f"DATA_PREPARATION.SCAN_MAX_VALUE: found {high:g}; must be above SCAN_MIN_VALUE={low:g}"
        )


def _axis_codes(cfg: DictConfig) -> Iterator[str]:
    axes = ("LR", "AP", "IS")
    for case, codes in cfg.DATA_PREPARATION.AXIS_CODES.items():
        fits = len(codes) == len(axes) and all(
            sum(code in axis for code in codes) == 1 for axis in axes
        )
        if not fits:
            yield (
                f"DATA_PREPARATION.AXIS_CODES.{case}: found {codes!r}; expected three letters, one "
                "each of L/R, A/P and I/S, such as RAS"
            )


def _loss_terms(cfg: DictConfig) -> Iterator[str]:
    loss = cfg.LOSS
    if not (loss.FOCAL.ENABLED or loss.MS_SSIM.ENABLED or loss.IOU.ENABLED):
        yield "LOSS: FOCAL, MS_SSIM and IOU are all switched off; enable at least one"


def _optimizer(cfg: DictConfig) -> Iterator[str]:
    settings = cfg.HYPER_PARAMETERS
    decay, optimizer = settings.WEIGHT_DECAY, str(settings.OPTIMIZER)
    if optimizer == "adam" and decay:
        yield (
            f"HYPER_PARAMETERS.WEIGHT_DECAY: found {decay:g}; OPTIMIZER=adam has no weight decay, "
            "OPTIMIZER=adamw is Adam with it"
        )
    if optimizer == "adamw" and not decay:
        yield (
            "HYPER_PARAMETERS.WEIGHT_DECAY: found 0; OPTIMIZER=adamw without it is adam; 0.01 is "
            "usual"
        )
    warm_up = settings.LEARNING_RATE_SCHEDULE.WARMUP_EPOCHS
    if warm_up >= settings.EPOCHS:
        yield (
            f"HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE.WARMUP_EPOCHS: found {warm_up:g}; must be "
            f"below HYPER_PARAMETERS.EPOCHS={settings.EPOCHS}"
        )


def _dataset_paths(cfg: DictConfig) -> Iterator[str]:
    for split in ("TRAIN", "VAL"):
        for name in ("IMAGES_PATH", "MASK_PATH"):
            value = cfg.DATASET[split][name]
            is_list = OmegaConf.is_list(value) and all(isinstance(item, str) for item in value)
            if not (isinstance(value, str) or is_list or (value is None and name == "MASK_PATH")):
                expected = "a folder or a list of files"
                yield f"DATASET.{split}.{name}: found {value!r}; expected {expected}"


def _case_split(cfg: DictConfig) -> Iterator[str]:
    yield from split_problems(cfg.DATASET.SPLIT)
    if cfg.EVALUATION.SPLIT == "held_out" and not is_carved(cfg):
        yield (
            "EVALUATION.SPLIT: found held_out; set DATASET.SPLIT as it was in training, which says "
            "which cases these are"
        )


def _augmentation(cfg: DictConfig) -> Iterator[str]:
    keys = cfg.AUGMENTATION
    for name in ("SCALE", "CONTRAST"):
        values = list(keys[name])
        if len(values) != 2 or values[0] > values[1]:
            yield f"AUGMENTATION.{name}: found {values}; expected [least, greatest]"
    elastic = keys.ELASTIC
    if elastic.AMPLITUDE > 0.4 * elastic.GRID:
        yield (
            f"AUGMENTATION.ELASTIC.AMPLITUDE: found {elastic.AMPLITUDE:g}; more than 0.4 GRID "
            f"({0.4 * elastic.GRID:g}) would fold the slice over"
        )
    if keys.ENABLED and elastic.AMPLITUDE and cfg.DATA_GENERATOR_TYPE == "DALI_GENERATOR":
        yield (
            f"AUGMENTATION.ELASTIC.AMPLITUDE: found {elastic.AMPLITUDE:g}; DALI_GENERATOR cannot "
            "displace slices; set 0, or DATA_GENERATOR_TYPE=TF_GENERATOR"
        )


def _export_formats(cfg: DictConfig) -> Iterator[str]:
    if not cfg.EXPORT.FORMATS:
        choices = ", ".join(ExportFormat)
        yield f"EXPORT.FORMATS: found an empty list; expected one or more of {choices}"


def _gpu_ids(cfg: DictConfig) -> Iterator[str]:
    value = cfg.USE_MULTI_GPUS.GPU_IDS
    ids = list(value) if OmegaConf.is_list(value) else []
    is_count = type(value) is int and (value == -1 or value > 0)
    is_ids = bool(ids) and all(type(i) is int and i >= 0 for i in ids) and len(set(ids)) == len(ids)
    if not (is_count or is_ids):
        yield (
            f"USE_MULTI_GPUS.GPU_IDS: found {value!r}; expected -1 (all), a number of GPUs, or a "
            "quoted list of different ids such as 'USE_MULTI_GPUS.GPU_IDS=[4,5,7]'"
        )


def _start_weights(cfg: DictConfig) -> Iterator[str]:
    for key, others in (("MODEL.WEIGHTS", ()), ("MODEL.BACKBONE.WEIGHTS", ("imagenet",))):
        value = OmegaConf.select(cfg, key, throw_on_missing=True)
        if value is not None and value not in others and not value.endswith(LEGACY_SUFFIXES):
            expected = ", ".join(
                ("null", *others, f"a weight file (…{WEIGHTS_SUFFIX}, ….h5, ….hdf5)")
            )
            yield f"{key}: found {value!r}; expected {expected}"
    if not uses_imagenet(cfg):
        return
    weights = f"MODEL.BACKBONE.WEIGHTS={cfg.MODEL.BACKBONE.WEIGHTS}"
    if cfg.MODEL.BACKBONE.TYPE == "unet3plus":
        yield f"{weights}: ImageNet weights exist for MODEL.BACKBONE.TYPE=vgg16 and vgg19 only"
    if cfg.INPUT.CHANNELS != 3:
        yield f"INPUT.CHANNELS: found {cfg.INPUT.CHANNELS}; {weights} needs 3"
    if list(cfg.MODEL.FILTERS[:4]) != IMAGENET_FILTERS:
        found = list(cfg.MODEL.FILTERS)
        yield f"MODEL.FILTERS: found {found}; {weights} needs {IMAGENET_FILTERS} and any fifth"


def _training_grid(cfg: DictConfig) -> Iterator[str]:
    for key, values in cfg.BENCHMARK_TRAINING.items():
        if not values or len(set(values)) < len(values):
            found = list(values)
            yield f"BENCHMARK_TRAINING.{key}: found {found}; expected one value or more, none twice"


_RULES: tuple[Callable[[DictConfig], Iterator[str]], ...] = (
    _sizes,
    _lengths,
    _labels,
    _hu_window,
    _axis_codes,
    _loss_terms,
    _optimizer,
    _dataset_paths,
    _case_split,
    _augmentation,
    _gpu_ids,
    _start_weights,
    _export_formats,
    _training_grid,
)

"""What keys of the configuration ask of one another; each rule yields a sentence per problem."""

from collections.abc import Callable, Iterator

from omegaconf import DictConfig, OmegaConf

from configs.schema import ExportFormat
from utils.case_split import is_carved, split_problems
from utils.paths import LEGACY_SUFFIXES, WEIGHTS_SUFFIX

LEVELS = 5  # encoder levels of UNet 3+, and heads under deep supervision
STRIDE = 2 ** (LEVELS - 1)  # of the deepest level
IMAGENET_FILTERS = [64, 128, 256, 512]  # channels of the VGG networks, the last one twice


def uses_imagenet(cfg: DictConfig) -> bool:
    """Whether the encoder has ImageNet weights: any, downloaded or a file, but our own."""
    weights = cfg.MODEL.BACKBONE.WEIGHTS
    return weights is not None and not weights.endswith(WEIGHTS_SUFFIX)


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
                expected = "a folder, a list of files or a text file of paths"
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


RULES: tuple[Callable[[DictConfig], Iterator[str]], ...] = (
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

"""Types and choices of every key in `config.yaml`; the defaults live there and nowhere else."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from omegaconf import MISSING


def _choices(name: str, *values: str) -> Any:
    """A string enumeration whose members are named like their values, as Hydra spells them."""
    return StrEnum(name, {value: value for value in values})


ModelType = _choices("ModelType", "unet3plus", "unet3plus_deepsup", "unet3plus_deepsup_cgm")
BackboneType = _choices("BackboneType", "unet3plus", "vgg16", "vgg19")
GateMode = _choices("GateMode", "inference", "always")
Resample = _choices("Resample", "exact_fast", "direct")
LossType = _choices("LossType", "unet3p_hybrid", "reference")
GeneratorType = _choices("GeneratorType", "AUTO", "TF_GENERATOR", "DALI_GENERATOR")
Fit = _choices("Fit", "resize", "crop")
Labels = _choices("Labels", "liver", "liver_and_tumour")
EvaluationSplit = _choices("EvaluationSplit", "val", "held_out")
Convention = _choices("Convention", "clear", "lits")
ClusterKind = _choices("ClusterKind", "auto", "slurm", "none")
OptimizerType = _choices("OptimizerType", "adam", "adamw", "sgd")
ScheduleType = _choices("ScheduleType", "constant", "cosine", "polynomial")
AmpDtype = _choices("AmpDtype", "float16", "bfloat16")
ExportFormat = _choices("ExportFormat", "saved_model", "onnx")
ImagePreprocessing = _choices("ImagePreprocessing", "normalize")


def one_of(*values: Any) -> Any:
    """A field of mixed type that takes one of `values`, compared by type and value."""
    return field(default=MISSING, metadata={"choices": values})


def at_least(low: float) -> Any:
    """A number, or a list of numbers, none below `low`; null passes where the type allows it."""
    return within(low, math.inf)


def within(low: float, high: float) -> Any:
    """A number, or a list of numbers, from `low` to `high`, both included."""
    return field(default=MISSING, metadata={"range": (low, high)})


@dataclass
class DataPreparation:
    """`DATA_PREPARATION`: from NIfTI scans to PNG slices."""

    SCANS_TRAIN_DATA_PATH: str | None = MISSING
    SCANS_VAL_DATA_PATH: str | None = MISSING
    RESIZED_HEIGHT: int = at_least(1)
    RESIZED_WIDTH: int = at_least(1)
    SCAN_MIN_VALUE: float = MISSING
    SCAN_MAX_VALUE: float = MISSING
    FIT: Fit = MISSING
    LABELS: Labels = MISSING
    AXIS_CODES: dict[str, str] = MISSING
    WORKERS: int | None = at_least(1)


@dataclass
class SliceFiles:
    """`DATASET.VAL`: a folder, a list of files, or a text file with one path per line each."""

    IMAGES_PATH: Any = MISSING
    MASK_PATH: Any = MISSING


@dataclass
class TrainingSlices(SliceFiles):
    """`DATASET.TRAIN`: files as in `DATASET.VAL`, and which of them to use."""

    EMPTY_SLICES: float = within(0, 1)


@dataclass
class CaseSplit:
    """`DATASET.SPLIT`: validation cases out of TRAIN."""

    VAL_FRACTION: float = within(0, 0.99)
    VAL_CASES: list[str] | None = MISSING
    FOLDS: int = at_least(0)
    FOLD: int = at_least(0)
    SEED: int = within(0, 2**32 - 1)


@dataclass
class Dataset:
    """`DATASET`: the slices to train and to validate on."""

    TRAIN: TrainingSlices = field(default_factory=TrainingSlices)
    VAL: SliceFiles = field(default_factory=SliceFiles)
    SPLIT: CaseSplit = field(default_factory=CaseSplit)
    ALLOW_SHARED_CASES: bool = MISSING


@dataclass
class Elastic:
    """`AUGMENTATION.ELASTIC`: smooth displacements."""

    AMPLITUDE: float = at_least(0)
    GRID: int = at_least(4)


@dataclass
class Augmentation:
    """`AUGMENTATION`: random changes of training slices."""

    ENABLED: bool = MISSING
    ROTATION: float = within(0, 180)
    SCALE: list[float] = within(0.1, 10)
    SHIFT: float = within(0, 0.5)
    HORIZONTAL_FLIP: float = within(0, 1)
    VERTICAL_FLIP: float = within(0, 1)
    BRIGHTNESS: float = at_least(0)
    CONTRAST: list[float] = within(0, 10)
    NOISE: float = at_least(0)
    BLUR: float = within(0, 10)
    ELASTIC: Elastic = field(default_factory=Elastic)


@dataclass
class Backbone:
    """`MODEL.BACKBONE`: the encoder."""

    TYPE: BackboneType = MISSING
    WEIGHTS: str | None = MISSING


@dataclass
class BatchNorm:
    """`MODEL.BATCH_NORM`: batch normalisation (momentum in Keras's sense)."""

    MOMENTUM: float = within(0, 1)
    EPSILON: float = within(0, 1)
    SYNCHRONIZED: bool = MISSING


@dataclass
class Cgm:
    """`MODEL.CGM`: the classification-guided module."""

    DROPOUT: float = within(0, 0.99)
    GATE: GateMode = MISSING


@dataclass
class Model:
    """`MODEL`: the network."""

    TYPE: ModelType = MISSING
    WEIGHTS_FILE_NAME: str = MISSING
    WEIGHTS: str | None = MISSING
    BACKBONE: Backbone = field(default_factory=Backbone)
    FILTERS: list[int] = at_least(1)
    L2: float = at_least(0)
    BATCH_NORM: BatchNorm = field(default_factory=BatchNorm)
    CGM: Cgm = field(default_factory=Cgm)
    RESAMPLE: Resample = MISSING


@dataclass
class Focal:
    """`LOSS.FOCAL`: the pixel term."""

    ENABLED: bool = MISSING
    GAMMA: float = at_least(0)
    ALPHA: float | None = within(0, 1)


@dataclass
class MsSsim:
    """`LOSS.MS_SSIM`: the patch term."""

    ENABLED: bool = MISSING


@dataclass
class Iou:
    """`LOSS.IOU`: the map term."""

    ENABLED: bool = MISSING
    SMOOTH: float = at_least(1e-6)
    ABSENT_CLASSES: bool = MISSING


@dataclass
class Loss:
    """`LOSS`: what training minimises."""

    TYPE: LossType = MISSING
    FOCAL: Focal = field(default_factory=Focal)
    MS_SSIM: MsSsim = field(default_factory=MsSsim)
    IOU: Iou = field(default_factory=Iou)
    INCLUDE_BACKGROUND: bool = MISSING
    DEEP_SUPERVISION_WEIGHTS: list[float] = at_least(0)
    CGM_WEIGHT: float = at_least(0)


@dataclass
class Input:
    """`INPUT`: the size of a slice, px, and its channels."""

    HEIGHT: int = at_least(16)
    WIDTH: int = at_least(16)
    CHANNELS: int = at_least(1)


@dataclass
class Output:
    """`OUTPUT`: the classes, background included unless there is only one."""

    CLASSES: int = within(1, 256)


@dataclass
class LearningRateSchedule:
    """`HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE`: how the learning rate changes."""

    TYPE: ScheduleType = MISSING
    WARMUP_EPOCHS: float = at_least(0)
    FINAL_FRACTION: float = within(0, 1)
    POWER: float = within(1e-6, 100)


@dataclass
class HyperParameters:
    """`HYPER_PARAMETERS`: the length and pace of training."""

    EPOCHS: int = at_least(1)
    BATCH_SIZE: int = at_least(1)
    LEARNING_RATE: float = within(1e-12, 1e3)
    STEPS_PER_EPOCH: int | None = at_least(1)
    OPTIMIZER: OptimizerType = MISSING
    MOMENTUM: float = within(0, 0.9999)
    NESTEROV: bool = MISSING
    WEIGHT_DECAY: float = at_least(0)
    LEARNING_RATE_SCHEDULE: LearningRateSchedule = field(default_factory=LearningRateSchedule)
    CLIP_NORM: float | None = at_least(1e-9)
    GRADIENT_ACCUMULATION: int = at_least(1)
    EMA: float | None = within(0, 0.999999)


@dataclass
class TensorBoard:
    """`CALLBACKS.TENSORBOARD`."""

    PATH: str = MISSING
    IMAGES: int = at_least(0)


@dataclass
class EarlyStopping:
    """`CALLBACKS.EARLY_STOPPING`."""

    PATIENCE: int = at_least(1)


@dataclass
class ModelCheckpoint:
    """`CALLBACKS.MODEL_CHECKPOINT`."""

    PATH: str = MISSING
    SAVE_WEIGHTS_ONLY: bool = MISSING
    SAVE_BEST_ONLY: bool = MISSING


@dataclass
class CsvLogger:
    """`CALLBACKS.CSV_LOGGER`."""

    PATH: str = MISSING
    APPEND_LOGS: bool = MISSING


@dataclass
class Callbacks:
    """`CALLBACKS`: what watches the training."""

    TENSORBOARD: TensorBoard = field(default_factory=TensorBoard)
    EARLY_STOPPING: EarlyStopping = field(default_factory=EarlyStopping)
    MODEL_CHECKPOINT: ModelCheckpoint = field(default_factory=ModelCheckpoint)
    CSV_LOGGER: CsvLogger = field(default_factory=CsvLogger)


@dataclass
class Resize:
    """`PREPROCESS_DATA.RESIZE`."""

    VALUE: bool = MISSING
    HEIGHT: int = at_least(1)
    WIDTH: int = at_least(1)


@dataclass
class NormalizeMask:
    """`PREPROCESS_DATA.NORMALIZE_MASK`."""

    VALUE: bool = MISSING
    NORMALIZE_VALUE: int = within(1, 65535)


@dataclass
class Flag:
    """A switch under a key of its own, as in `PREPROCESS_DATA.SHUFFLE.TRAIN.VALUE`."""

    VALUE: bool = MISSING


@dataclass
class Shuffle:
    """`PREPROCESS_DATA.SHUFFLE`."""

    TRAIN: Flag = field(default_factory=Flag)
    VAL: Flag = field(default_factory=Flag)


@dataclass
class PreprocessData:
    """`PREPROCESS_DATA`: what happens to a slice while it is loaded."""

    RESIZE: Resize = field(default_factory=Resize)
    IMAGE_PREPROCESSING_TYPE: ImagePreprocessing = MISSING
    NORMALIZE_MASK: NormalizeMask = field(default_factory=NormalizeMask)
    SHUFFLE: Shuffle = field(default_factory=Shuffle)


@dataclass
class UseMultiGpus:
    """`USE_MULTI_GPUS`."""

    VALUE: bool = MISSING
    GPU_IDS: Any = MISSING
    CPU_REPLICAS: int | None = at_least(1)
    CLUSTER: ClusterKind = MISSING


@dataclass
class Optimization:
    """`OPTIMIZATION`: mixed precision and compilation."""

    AMP: Any = one_of(True, False, "auto")
    AMP_DTYPE: AmpDtype = MISSING
    XLA: Any = one_of(True, False, "auto")


@dataclass
class Evaluation:
    """`EVALUATION`: which scans are scored, and how."""

    SPLIT: EvaluationSplit = MISSING
    CONVENTION: Convention = MISSING
    KEEP_LARGEST_COMPONENT: bool = MISSING


@dataclass
class Export:
    """`EXPORT`: the network in a form that is served without this project."""

    PATH: str = MISSING
    FORMATS: list[ExportFormat] = MISSING
    BATCH_SIZE: int | None = at_least(1)


@dataclass
class BenchmarkTraining:
    """`BENCHMARK_TRAINING`: the grid that `benchmark_training.py` measures."""

    BATCH_SIZES: list[int] = at_least(1)
    AMP: list[bool] = MISSING
    XLA: list[bool] = MISSING


@dataclass
class Phantom:
    """`PHANTOM`: the scans that `data_preparation/synthetic.py` draws."""

    TRAIN_CASES: int = at_least(1)
    VAL_CASES: int = at_least(1)
    SIZE: int = at_least(32)
    SLICES: int = at_least(3)


@dataclass
class Config:
    """The whole configuration, section by section as in `config.yaml`."""

    WORK_DIR: str = MISSING
    DATA_PREPARATION: DataPreparation = field(default_factory=DataPreparation)
    DATASET: Dataset = field(default_factory=Dataset)
    AUGMENTATION: Augmentation = field(default_factory=Augmentation)
    MODEL: Model = field(default_factory=Model)
    LOSS: Loss = field(default_factory=Loss)
    DATA_GENERATOR_TYPE: GeneratorType = MISSING
    SEED: int = within(0, 2**32 - 1)
    RESUME: bool = MISSING
    VERBOSE: int = one_of(0, 1, 2)
    DATALOADER_WORKERS: int = at_least(1)
    SHOW_CENTER_CHANNEL_IMAGE: bool = MISSING
    RESULTS_PATH: str = MISSING
    INPUT: Input = field(default_factory=Input)
    OUTPUT: Output = field(default_factory=Output)
    HYPER_PARAMETERS: HyperParameters = field(default_factory=HyperParameters)
    CALLBACKS: Callbacks = field(default_factory=Callbacks)
    PREPROCESS_DATA: PreprocessData = field(default_factory=PreprocessData)
    USE_MULTI_GPUS: UseMultiGpus = field(default_factory=UseMultiGpus)
    OPTIMIZATION: Optimization = field(default_factory=Optimization)
    EVALUATION: Evaluation = field(default_factory=Evaluation)
    OVERWRITE: bool = MISSING
    SHOW: bool = MISSING
    warmup_steps: int = at_least(0)
    bench_steps: int = at_least(1)
    runs: int = at_least(1)
    use_weights: bool = MISSING
    EXPORT: Export = field(default_factory=Export)
    BENCHMARK_TRAINING: BenchmarkTraining = field(default_factory=BenchmarkTraining)
    PHANTOM: Phantom = field(default_factory=Phantom)

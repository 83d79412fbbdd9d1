"""The one place that chooses devices, precision, compilation, distribution strategy and seed."""

from dataclasses import dataclass

import keras
import tensorflow as tf
from omegaconf import DictConfig, ListConfig

from utils.errors import UserError
from utils.log import logger

TENSOR_CORES = (7, 0)  # first compute capability on which float16 is faster


@dataclass(frozen=True)
class Runtime:
    """Where and how a model runs.

    Attributes:
        strategy: build and compile the model in its scope; the default strategy on one device.
        devices: names of the devices in use, one per replica.
        amp: mixed_float16 instead of float32.
        xla: compile the model with XLA.
    """

    strategy: tf.distribute.Strategy
    devices: tuple[str, ...]
    amp: bool
    xla: bool

    @property
    def replicas(self) -> int:
        """Copies of the model that train together."""
        return len(self.devices)

    @property
    def jit_compile(self) -> bool:
        """What to pass to `compile`: XLA of the whole step works on one replica only."""
        return self.xla and self.replicas == 1


def setup_runtime(cfg: DictConfig) -> Runtime:
    """Set up TensorFlow as the configuration says; call it before anything touches a device.

    Raises:
        UserError: a GPU was asked for that does not exist.
    """
    gpus = tf.config.list_physical_devices("GPU")
    chosen = _choose_gpus(gpus, cfg.USE_MULTI_GPUS.VALUE, cfg.USE_MULTI_GPUS.GPU_IDS)
    for gpu in chosen:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.set_visible_devices(chosen, "GPU")

    amp = _switch("OPTIMIZATION.AMP", cfg.OPTIMIZATION.AMP, _gains_from_float16(chosen))
    xla = _switch("OPTIMIZATION.XLA", cfg.OPTIMIZATION.XLA, bool(chosen))
    keras.config.set_dtype_policy("mixed_float16" if amp else "float32")
    keras.utils.set_random_seed(cfg.SEED)
    tf.config.optimizer.set_jit("autoclustering" if xla and len(chosen) > 1 else False)

    names = tuple(gpu.name.removeprefix("/physical_device:") for gpu in chosen) or ("CPU:0",)
    strategy = tf.distribute.MirroredStrategy() if len(chosen) > 1 else tf.distribute.get_strategy()
    logger.info(f"Devices: {', '.join(names)}; precision {keras.config.dtype_policy().name}")
    return Runtime(strategy, names, amp, xla)


def _choose_gpus(gpus: list, use_multi: bool, ids: int | ListConfig) -> list:
    if not gpus:
        if use_multi:
            logger.info("USE_MULTI_GPUS: this machine has no GPU, running on the CPU")
        return []
    if not use_multi:
        return gpus[:1]
    wanted = list(ids) if not isinstance(ids, int) else range(len(gpus) if ids == -1 else ids)
    missing = [i for i in wanted if i >= len(gpus)]
    if missing:
        raise UserError(
            f"USE_MULTI_GPUS.GPU_IDS: GPU {', '.join(map(str, missing))} does not exist; this "
            f"machine has {len(gpus)}, numbered from 0"
        )
    return [gpus[i] for i in wanted]


def _gains_from_float16(gpus: list) -> bool:
    capabilities = [
        tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in gpus
    ]
    return bool(gpus) and min(capabilities) >= TENSOR_CORES


def _switch(key: str, value: bool | str, gains: bool) -> bool:
    if value == "auto":
        logger.info(f"{key}=auto: {'on' if gains else 'off'} on this hardware")
        return gains
    if value and not gains:
        logger.warning(f"{key}=True: this hardware gains nothing from it")
    return value

"""The one place that chooses devices, precision, compilation, distribution strategy and seed."""

import os
import platform
from dataclasses import dataclass
from functools import cache

import keras
import tensorflow as tf
from omegaconf import DictConfig, ListConfig

from utils.cluster import find_cluster, join_cluster
from utils.errors import UserError
from utils.log import logger

# First compute capability on which the data type is faster than float32
TENSOR_CORES = {"float16": (7, 0), "bfloat16": (8, 0)}
FAST_CHANNELS = 8  # tensor cores take channels by the eight


@dataclass(frozen=True)
class Runtime:
    """Where and how a model runs.

    Attributes:
        strategy: build and compile the model in its scope; the default strategy on one device.
        devices: names of the devices in use by this process, one per replica.
        amp: mixed precision instead of float32.
        xla: compile the model with XLA.
        is_chief: whether this process writes files; one of those that train together does.
        hardware: what the devices are.
    """

    strategy: tf.distribute.Strategy
    devices: tuple[str, ...]
    amp: bool
    xla: bool
    is_chief: bool = True
    hardware: tuple[str, ...] = ()

    @property
    def replicas(self) -> int:
        """Copies of the model that train together, over all machines."""
        return self.strategy.num_replicas_in_sync

    @property
    def precision(self) -> str:
        """Name of the data type policy, such as mixed_float16."""
        return keras.config.dtype_policy().name

    @property
    def jit_compile(self) -> bool:
        """What to pass to `compile`: XLA of the whole step works on one replica only."""
        return self.xla and self.replicas == 1

    def is_same_everywhere(self, number: int) -> bool:
        """Whether all processes that train together call this with the same number."""
        if self.replicas == len(self.devices):
            return True
        values = self.strategy.run(tf.function(lambda: tf.constant(number, tf.float64)))
        return float(self.strategy.reduce("MEAN", values, axis=None)) == number


def setup_runtime(cfg: DictConfig, distribute: bool = False) -> Runtime:
    """Set up TensorFlow as the configuration says; call it before anything touches a device.

    Precision, compilation and seed are set anew by every call, so that runs in one process do not
    inherit them. TensorFlow fixes devices with the first use, so other ones are refused later.

    Args:
        cfg: the configuration.
        distribute: whether to train on all devices and machines that `cfg` names; otherwise on the
            first of these devices.

    Raises:
        UserError: a GPU was asked for that does not exist, or devices differ from those that an
            earlier run in this process has fixed.
    """
    gpus = [] if cfg.USE_MULTI_GPUS.CPU_REPLICAS else _choose_gpus(cfg)
    try:
        names = _claim_gpus(gpus) if gpus else _claim_cpus(cfg.USE_MULTI_GPUS.CPU_REPLICAS or 1)
    except RuntimeError as error:
        raise UserError(
            "USE_MULTI_GPUS: an earlier run in this process uses other devices, and TensorFlow "
            f"cannot change them ({error}); start a new process"
        ) from None

    cluster = find_cluster(str(cfg.USE_MULTI_GPUS.CLUSTER)) if distribute else None
    if cluster and cfg.USE_MULTI_GPUS.CPU_REPLICAS not in (None, 1):
        raise UserError(
            f"USE_MULTI_GPUS.CPU_REPLICAS: found {cfg.USE_MULTI_GPUS.CPU_REPLICAS}; a process of a "
            "cluster has one replica on its CPU"
        )
    names = names if distribute else names[:1]
    if cluster:  # before any operation, which would start TensorFlow without the cluster
        strategy = join_cluster(cluster, len(gpus))
    elif len(names) > 1:
        strategy = _mirror("GPU" if gpus else "CPU", len(names))
    else:
        strategy = tf.distribute.get_strategy()

    amp = _set_precision(cfg, gpus)
    xla = _switch("OPTIMIZATION.XLA", cfg.OPTIMIZATION.XLA, bool(gpus))
    several = strategy.num_replicas_in_sync > 1
    tf.config.optimizer.set_jit("autoclustering" if xla and several else False)
    keras.utils.set_random_seed(cfg.SEED)
    hardware = _describe(gpus[: len(names)])
    policy = keras.config.dtype_policy()
    logger.info(
        f"Devices: {', '.join(names)} ({', '.join(sorted(set(hardware)))}); "
        f"{strategy.num_replicas_in_sync} replica(s); compute {policy.compute_dtype}, "
        f"variables {policy.variable_dtype}; XLA {'on' if xla else 'off'}"
    )
    is_chief = cluster is None or cluster.is_chief
    return Runtime(strategy, names, amp, xla, is_chief, hardware)


def _choose_gpus(cfg: DictConfig) -> list:
    gpus = tf.config.list_physical_devices("GPU")
    use_multi, ids = cfg.USE_MULTI_GPUS.VALUE, cfg.USE_MULTI_GPUS.GPU_IDS
    if not use_multi:
        return gpus[:1]
    if not gpus and ids == -1:
        logger.info("USE_MULTI_GPUS: this machine has no GPU, running on the CPU")
        return []
    return [gpus[i] for i in _existing(ids, len(gpus))]


def _existing(ids: int | ListConfig, count: int) -> list[int]:
    wanted = list(ids) if not isinstance(ids, int) else range(count if ids == -1 else ids)
    missing = [i for i in wanted if i >= count]
    if missing:
        raise UserError(
            f"USE_MULTI_GPUS.GPU_IDS: GPU {', '.join(map(str, missing))} does not exist; this "
            + (f"machine has {count}, numbered from 0" if count else "machine has none")
        )
    return list(wanted)


def _claim_gpus(gpus: list) -> tuple[str, ...]:
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.set_visible_devices(gpus, "GPU")
    return tuple(gpu.name.removeprefix("/physical_device:") for gpu in gpus)


def _claim_cpus(replicas: int) -> tuple[str, ...]:
    """The CPU as `replicas` logical devices; more than that are there after a run with more."""
    tf.config.set_visible_devices([], "GPU")
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = tf.config.get_logical_device_configuration(cpu)
    if replicas > len(logical or [cpu]):
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
        )
    return tuple(f"CPU:{i}" for i in range(replicas))


@cache
def _mirror(kind: str, count: int) -> tf.distribute.MirroredStrategy:
    """One strategy per process and devices: reductions of two would mix up their messages.

    TensorFlow numbers the visible devices, not those that the machine has.
    """
    return tf.distribute.MirroredStrategy([f"{kind}:{i}" for i in range(count)])


def _set_precision(cfg: DictConfig, gpus: list) -> bool:
    dtype = str(cfg.OPTIMIZATION.AMP_DTYPE)
    amp = _switch("OPTIMIZATION.AMP", cfg.OPTIMIZATION.AMP, _is_faster(dtype, gpus))
    keras.config.set_dtype_policy(f"mixed_{dtype}" if amp else "float32")
    odd = [filters for filters in cfg.MODEL.FILTERS if filters % FAST_CHANNELS]
    if amp and odd:
        logger.warning(
            f"MODEL.FILTERS: found {', '.join(map(str, odd))}; mixed precision is fast on "
            f"multiples of {FAST_CHANNELS}"
        )
    return amp


def _is_faster(dtype: str, gpus: list) -> bool:
    capabilities = [
        tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in gpus
    ]
    return bool(gpus) and min(capabilities) >= TENSOR_CORES[dtype]


def _describe(gpus: list) -> tuple[str, ...]:
    if not gpus:
        return (f"{platform.machine()} CPU, {os.cpu_count()} cores",)
    details = map(tf.config.experimental.get_device_details, gpus)
    return tuple(map(_gpu_name, details))


def _gpu_name(details: dict) -> str:
    name, capability = details.get("device_name", "GPU"), details.get("compute_capability")
    return f"{name}, compute capability {'.'.join(map(str, capability))}" if capability else name


def _switch(key: str, value: bool | str, gains: bool) -> bool:
    if value == "auto":
        logger.info(f"{key}=auto: {'on' if gains else 'off'} on this hardware")
        return gains
    if value and not gains:
        logger.warning(f"{key}=True: this hardware gains nothing from it")
    return bool(value)

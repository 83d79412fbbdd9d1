"""Devices, precision and clusters: what is chosen, reset, warned of and refused."""

import json
import logging

import keras
import pytest
import tensorflow as tf

from utils.cluster import find_cluster
from utils.errors import UserError
from utils.log import logger
from utils.runtime import setup_runtime


@pytest.fixture(autouse=True)
def defaults(monkeypatch):
    """No cluster before, float32 and no XLA after."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    yield
    keras.config.set_dtype_policy("float32")
    tf.config.optimizer.set_jit(False)


@pytest.fixture
def log(caplog, monkeypatch):
    """What is logged."""
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logger, "disabled", False)
    caplog.set_level(logging.INFO, logger="unet3plus")
    return caplog


class FakeGpus:
    """GPUs of compute capability `capability`, as tf.config describes them."""

    def __init__(self, monkeypatch, count: int, capability: tuple[int, int] = (8, 0)):
        self.grown, self.visible = [], None
        self.fixed: list | None = None
        names = [f"/physical_device:GPU:{i}" for i in range(count)]
        self.gpus = [tf.config.PhysicalDevice(name, "GPU") for name in names]
        list_devices = tf.config.list_physical_devices
        details = {"compute_capability": capability, "device_name": "NVIDIA Test"}
        experimental = tf.config.experimental
        monkeypatch.setattr(experimental, "get_device_details", lambda gpu: details)
        monkeypatch.setattr(experimental, "set_memory_growth", self.set_growth)
        monkeypatch.setattr(tf.config, "set_visible_devices", self.set_visible)
        monkeypatch.setattr(
            tf.config,
            "list_physical_devices",
            lambda kind: self.gpus if kind == "GPU" else list_devices(kind),
        )

    def set_growth(self, gpu, enable):
        assert enable
        self.grown.append(gpu)

    def set_visible(self, devices, kind):
        assert kind == "GPU"
        if self.fixed not in (None, devices):
            raise RuntimeError("Visible devices cannot be modified after being initialized")
        self.visible = devices


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"VALUE": False}, [0]),
        ({"VALUE": False, "GPU_IDS": [2]}, [0]),
        ({"VALUE": True, "GPU_IDS": 1}, [0]),
        ({"VALUE": True, "GPU_IDS": [2]}, [2]),
        ({"VALUE": True, "GPU_IDS": -1}, [0, 1, 2]),
        ({"VALUE": True, "GPU_IDS": 2}, [0, 1]),
        ({"VALUE": True, "GPU_IDS": [2, 0]}, [2, 0]),
    ],
)
def test_gpus_that_are_used(make_cfg, monkeypatch, settings, expected):
    fake = FakeGpus(monkeypatch, 3)
    runtime = setup_runtime(make_cfg(USE_MULTI_GPUS=settings))
    assert [fake.gpus.index(gpu) for gpu in fake.visible] == expected
    assert fake.grown == fake.visible
    assert runtime.devices == (f"GPU:{expected[0]}",)  # not distributed: the first of them
    assert runtime.hardware == ("NVIDIA Test, compute capability 8.0",)


@pytest.mark.parametrize(
    ("gpus", "ids", "message"),
    [
        (3, 4, "GPU 3 does not exist; this machine has 3, numbered from 0"),
        (3, [0, 5, 7], "GPU 5, 7 does not exist; this machine has 3"),
        (0, [3], "GPU 3 does not exist; this machine has none"),
        (0, 2, "GPU 0, 1 does not exist; this machine has none"),
    ],
)
def test_a_gpu_that_does_not_exist_is_an_error(make_cfg, monkeypatch, gpus, ids, message):
    FakeGpus(monkeypatch, gpus)
    with pytest.raises(UserError, match=f"GPU_IDS: {message}"):
        setup_runtime(make_cfg(USE_MULTI_GPUS={"VALUE": True, "GPU_IDS": ids}))


def test_other_gpus_than_those_of_an_earlier_run_are_refused(make_cfg, monkeypatch):
    fake = FakeGpus(monkeypatch, 2)
    fake.fixed = fake.gpus
    setup_runtime(make_cfg(USE_MULTI_GPUS={"VALUE": True}))
    with pytest.raises(UserError, match=r"USE_MULTI_GPUS: an earlier run.*start a new process"):
        setup_runtime(make_cfg(USE_MULTI_GPUS={"VALUE": False}))


def test_more_cpu_replicas_than_those_of_an_earlier_run_are_refused(make_cfg):
    tf.zeros(1)  # TensorFlow has started
    with pytest.raises(UserError, match=r"USE_MULTI_GPUS: an earlier run.*Virtual devices"):
        setup_runtime(make_cfg(USE_MULTI_GPUS={"CPU_REPLICAS": 64}))


@pytest.mark.parametrize(
    ("capability", "dtype", "amp"),
    [
        ((7, 0), "float16", True),
        ((6, 1), "float16", False),
        ((7, 5), "bfloat16", False),
        ((8, 0), "bfloat16", True),
    ],
)
def test_auto_is_on_where_it_gains(make_cfg, monkeypatch, capability, dtype, amp):
    FakeGpus(monkeypatch, 1, capability)
    runtime = setup_runtime(make_cfg(OPTIMIZATION={"AMP_DTYPE": dtype}))
    assert runtime.amp is amp
    assert runtime.precision == (f"mixed_{dtype}" if amp else "float32")
    assert runtime.jit_compile is True


def test_a_run_does_not_inherit_precision_compilation_or_seed(make_cfg, log):
    first = setup_runtime(
        make_cfg(OPTIMIZATION={"AMP": True, "AMP_DTYPE": "bfloat16", "XLA": True})
    )
    assert (first.precision, first.jit_compile) == ("mixed_bfloat16", True)
    assert "compute bfloat16, variables float32; XLA on" in log.text
    tf.config.optimizer.set_jit("autoclustering")
    second = setup_runtime(make_cfg())
    assert (second.precision, second.jit_compile) == ("float32", False)
    assert not tf.config.optimizer.get_jit()
    assert "compute float32, variables float32; XLA off" in log.text


def test_every_run_starts_from_its_seed(make_cfg):
    def draw(seed: int) -> list[list[float]]:
        setup_runtime(make_cfg(SEED=seed))
        return keras.initializers.HeNormal()((3, 3)).numpy().tolist()

    assert draw(1) == draw(1) != draw(2)


def test_warnings_where_nothing_is_gained(make_cfg, log):
    setup_runtime(make_cfg(OPTIMIZATION={"AMP": True, "XLA": True}))
    warnings = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert warnings == [
        "OPTIMIZATION.AMP=True: this hardware gains nothing from it",
        "MODEL.FILTERS: found 4, 4; mixed precision is fast on multiples of 8",
        "OPTIMIZATION.XLA=True: this hardware gains nothing from it",
    ]


WORKERS = {"worker": ["a:1", "b:2"]}


@pytest.mark.parametrize(
    ("cluster", "job", "index", "is_chief"),
    [
        (WORKERS, "worker", 0, True),
        (WORKERS, "worker", 1, False),
        ({"chief": ["c:1"], **WORKERS}, "worker", 0, False),
        ({"chief": ["c:1"], **WORKERS}, "chief", 0, True),
    ],
)
def test_tf_config(monkeypatch, cluster, job, index, is_chief):
    task = {"type": job, "index": index}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    found = find_cluster("auto")
    assert (found.job, found.index, found.is_chief) == (job, index, is_chief)
    assert found.processes == sum(map(len, cluster.values()))
    assert find_cluster("none") is None


def test_a_cluster_of_one_process_is_none(monkeypatch):
    config = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert find_cluster("auto") is None
    monkeypatch.delenv("TF_CONFIG")
    assert find_cluster("auto") is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cluster": {"worker": ["a:1", "b:1"]}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}',
    ],
)
def test_a_bad_tf_config_is_refused(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="TF_CONFIG: found .*, which does not describe a cluster"):
        find_cluster("auto")


def test_cpu_replicas_in_a_cluster_are_refused(make_cfg, monkeypatch):
    config = {"cluster": WORKERS, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    monkeypatch.setattr("utils.runtime._claim_cpus", lambda count: ("CPU:0", "CPU:1"))
    cfg = make_cfg(USE_MULTI_GPUS={"CPU_REPLICAS": 2})
    with pytest.raises(UserError, match="CPU_REPLICAS: found 2; a process of a cluster has one"):
        setup_runtime(cfg, distribute=True)
    assert setup_runtime(cfg).replicas == 1  # evaluation and prediction stay alone


def slurm_step(monkeypatch, nodes: str, rank: int, node: str) -> None:
    variables = {
        "SLURM_PROCID": rank,
        "SLURM_STEP_NUM_TASKS": 3,
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
        "SLURMD_NODENAME": node,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


def test_slurm(monkeypatch):
    slurm_step(monkeypatch, "node[08-09]", 2, "node09")
    found = find_cluster("slurm")
    assert json.loads(found.spec) == {"worker": ["node08:8888", "node08:8889", "node09:8888"]}
    assert (found.job, found.index, found.is_chief) == ("worker", 2, False)
    assert find_cluster("auto") is None  # an allocation alone joins nobody


def test_slurm_is_refused_where_it_is_not_or_numbers_otherwise(monkeypatch):
    with pytest.raises(UserError, match="CLUSTER: found slurm, but this is no task"):
        find_cluster("slurm")
    slurm_step(monkeypatch, "node[9-10]", 0, "node9")
    with pytest.raises(UserError, match=r"task 0 runs on node9, where TensorFlow expects node10"):
        find_cluster("slurm")


@pytest.mark.parametrize("turn", [1, 2])
def test_tests_leave_no_precision_behind(turn):
    assert keras.config.dtype_policy().name == "float32"
    keras.config.set_dtype_policy("mixed_float16")

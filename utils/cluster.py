"""Several machines that train one model: who they are, and the strategy that joins them."""

import json
import os
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import tensorflow as tf

from utils.errors import UserError

KEY = "USE_MULTI_GPUS.CLUSTER"


@dataclass(frozen=True)
class Cluster:
    """All processes, and which of them this one is.

    Attributes:
        spec: addresses by job as JSON, {"worker": ["host:port", …]}, with one "chief" or without.
        job: this process's job.
        index: its number within the job.
    """

    spec: str
    job: str
    index: int

    @property
    def processes(self) -> int:
        """How many there are."""
        return sum(map(len, json.loads(self.spec).values()))

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints, logs and results."""
        return self.job == "chief" or (self.index == 0 and "chief" not in json.loads(self.spec))


class WorkersStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """`MultiWorkerMirroredStrategy` with the `reduce` that Keras 3 takes for granted.

    Keras 3 calls `reduce` on whole structures (the first batch, when it builds the model; masks of
    uint8 among them) and with `axis=0` on scalars (metric results). TensorFlow takes neither, nor
    small integers, so that `fit` breaks (keras-team/keras#20585). `tests/test_multi_worker.py`
    fails as soon as Keras does without.
    """

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """Reduce every value of a structure over all replicas; scalars have no axis to reduce."""

        def reduce_one(item: Any) -> tf.Tensor:
            local = self.experimental_local_results(item)[0]
            is_small = local.dtype in (tf.uint8, tf.int8, tf.bool)
            if is_small:
                widen = partial(tf.cast, dtype=tf.int32)
                item = tf.nest.map_structure(widen, item, expand_composites=True)
            is_scalar = len(local.shape) == 0
            total = super(WorkersStrategy, self).reduce(
                reduce_op, item, None if is_scalar else axis
            )
            return tf.cast(total, local.dtype) if is_small else total

        return tf.nest.map_structure(reduce_one, value)


def find_cluster(choice: str) -> Cluster | None:
    """The cluster that this process belongs to, None where it works alone.

    Args:
        choice: "auto" = what the environment variable TF_CONFIG says, if it is set; "slurm" = the
            tasks of the Slurm step; "none" = alone, whatever the environment.

    Raises:
        UserError: the environment does not describe a cluster.
    """
    text = os.environ.get("TF_CONFIG")
    if choice == "slurm":
        cluster = _from_slurm()
    elif choice == "auto" and text:
        cluster = _from_tf_config(text)
    else:
        return None
    return cluster if cluster.processes > 1 else None


def _from_tf_config(text: str) -> Cluster:
    try:
        config = json.loads(text)
        spec, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
        if not set(spec.jobs) <= {"chief", "worker"}:
            raise ValueError(f"its jobs are {', '.join(spec.jobs)}; expected chief and worker only")
        spec.task_address(task["type"], int(task["index"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"TF_CONFIG: found {text}, which does not describe a cluster ({error}); expected "
            '{"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}, '
            f"or {KEY}=none"
        ) from None
    return Cluster(json.dumps(spec.as_dict()), task["type"], int(task["index"]))


def _from_slurm() -> Cluster:
    """The step's tasks in the order of their ranks, on the ports from 8888."""
    try:
        tasks = int(os.environ["SLURM_STEP_NUM_TASKS"])
        # The two GPU numbers only shape the list of tasks; Slurm itself hands the GPUs out
        slurm = tf.distribute.cluster_resolver.SlurmClusterResolver(
            gpus_per_node=tasks, gpus_per_task=1, auto_set_gpu=False
        )
        spec = slurm.cluster_spec()
        job, rank = slurm.get_task_info()
        host = spec.task_address(job, rank).partition(":")[0]
    except (KeyError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{KEY}: found slurm, but this is no task of a Slurm step ({error}); start it by "
            "'srun python train.py …'"
        ) from None
    if os.environ.get("SLURMD_NODENAME", host) != host:
        raise UserError(
            f"{KEY}: task {rank} runs on {os.environ['SLURMD_NODENAME']}, where TensorFlow expects "
            f"{host}: it sorts nodes by name, as text, and Slurm numbers its tasks in another "
            "order; take nodes whose numbers have the same number of digits, or set TF_CONFIG"
        )
    return Cluster(json.dumps(spec.as_dict()), job, rank)


@cache
def join_cluster(cluster: Cluster, gpus: int) -> tf.distribute.Strategy:
    """The strategy over all processes, each with `gpus` GPUs (0: on its CPU); waits for them all.

    A process joins once: runs that follow in it get the same strategy.

    Raises:
        UserError: this process has used TensorFlow before, or has joined another cluster.
    """
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(json.loads(cluster.spec)),
        task_type=cluster.job,
        task_id=cluster.index,
        rpc_layer="grpc",
        num_accelerators={"GPU": gpus},
    )
    try:
        return WorkersStrategy(resolver)
    except RuntimeError as error:
        raise UserError(
            f"{KEY}: a process joins a cluster before it uses TensorFlow otherwise, and only once "
            f"({error}); start a new process"
        ) from None

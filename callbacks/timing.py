"""How long training takes."""

import time
from typing import Any

import keras
import numpy as np


class TimingCallback(keras.callbacks.Callback):
    """Measures training time, latency per batch and throughput.

    The first `warm_up_batches` of the run, which include tracing and compilation, are kept apart;
    validation and what lies between batches do not count.

    Args:
        global_batch: slices per step over all replicas.
        warm_up_batches: how many batches are left out of latency and throughput.
    """

    def __init__(self, global_batch: int, warm_up_batches: int = 2):
        super().__init__()
        self._global_batch, self._warm_up_batches = global_batch, warm_up_batches
        self._seconds: list[float] = []
        self._train_begin = self._train_seconds = self._batch_begin = 0.0
        self._earlier_seconds = 0.0

    def state(self) -> dict[str, Any]:
        """The training time so far."""
        elapsed = time.perf_counter() - self._train_begin
        return {"seconds": self._earlier_seconds + elapsed}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self._earlier_seconds = state["seconds"]

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Start the clock of the run."""
        self._train_begin = time.perf_counter()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Stop the clock of the run."""
        self._train_seconds = time.perf_counter() - self._train_begin

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Start the clock of a batch."""
        self._batch_begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Stop the clock of a batch; Keras has read its loss by then, so the device is done."""
        self._seconds.append(time.perf_counter() - self._batch_begin)

    def result(self) -> dict[str, float | None]:
        """Times in s and ms, throughput in slices per second.

        The total has in it the epochs before an interruption; the rest is of this process alone.
        Latency and throughput are None when the run had no batch after the warm-up.
        """
        warm_up, counted = np.split(self._seconds, [self._warm_up_batches])
        latency = float(counted.mean()) if counted.size else None
        return {
            "total_seconds": self._earlier_seconds + self._train_seconds,
            "warm_up_seconds": float(warm_up.sum()),
            "counted_batches": int(counted.size),
            "latency_msec": latency and latency * 1e3,
            "throughput_samples_per_sec": latency and self._global_batch / latency,
        }

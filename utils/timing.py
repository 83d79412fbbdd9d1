"""Timing of work that a device does."""

import time
from collections.abc import Callable

import tensorflow as tf


def time_calls(call: Callable[[], object], warm_up: int, steps: int) -> list[float]:
    """The time of each of `steps` calls, msec, after `warm_up` calls that do not count.

    The clock runs from an idle device until the device has finished.
    """
    for _ in range(warm_up):
        call()
    times = []
    for _ in range(steps):
        tf.test.experimental.sync_devices()
        start = time.perf_counter()
        call()
        tf.test.experimental.sync_devices()
        times.append(1000 * (time.perf_counter() - start))
    return times

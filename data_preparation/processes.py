"""Work in parallel processes that survives the death of one of them."""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from typing import TypeVar

import cv2

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_in_processes(
    function: Callable[[Job], Result], jobs: Iterable[Job], workers: int
) -> Iterator[tuple[Job, Result | None]]:
    """Pairs of job and `function(job)` as they finish; None where the process itself died.

    A process that dies (out of memory, say) takes the pool and the jobs of the others with it.
    Those run once more, each in a pool of its own, so that only the culprit is lost.

    Args:
        function: importable from a fresh process; its exceptions are raised here.
        jobs: what it is called with.
        workers: number of processes.
    """
    waiting = dict(enumerate(jobs))
    for number, result in _finished(function, waiting, workers):
        yield waiting.pop(number), result
    for number, job in waiting.items():
        results = dict(_finished(function, {number: job}, workers=1))
        yield job, results.get(number)


def _finished(
    function: Callable[[Job], Result], jobs: dict[int, Job], workers: int
) -> Iterator[tuple[int, Result]]:
    """Numbers and results of the jobs that one pool finishes; ends early if the pool breaks."""
    if not jobs:
        return
    # Fresh processes: a fork of one that runs threads (cv2's, TensorFlow's) may hang
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)), mp_context=get_context("spawn"), initializer=_start_worker
    )
    try:
        with suppress(BrokenProcessPool):
            futures = {pool.submit(function, job): number for number, job in jobs.items()}
            for future in as_completed(futures):
                yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    cv2.setNumThreads(1)  # the processes are parallel already

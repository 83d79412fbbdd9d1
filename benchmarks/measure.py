"""Timing things side by side, and writing down on what machine."""

import gc
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from utils.log import print_table
from utils.paths import write_json

RESULTS = Path(__file__).resolve().parent / "results"


def median_seconds(
    cases: Mapping[str, Callable[[], Any]], repeats: int, warm_up: int = 1
) -> dict[str, float]:
    """The median time of a call of each case, s.

    Cases take turns, so that whatever else the machine does at the time meets all of them alike.
    """
    times = {name: [] for name in cases}
    for turn in range(warm_up + repeats):
        for name, call in cases.items():
            start = time.perf_counter()
            call()
            if turn >= warm_up:
                times[name].append(time.perf_counter() - start)
    gc.collect()
    return {name: statistics.median(values) for name, values in times.items()}


def seconds_per_item(
    streams: Mapping[str, Iterator[Any]], turns: int, items: int, made_ahead: int
) -> dict[str, float]:
    """The median time of an item of each endless stream, s.

    Streams take turns and stay open in between. A turn takes `made_ahead` items, which may have
    been waiting, before the clock starts, and then `items` more.
    """
    times = {name: [] for name in streams}
    for _ in range(turns):
        for name, stream in streams.items():
            _take(stream, made_ahead)
            start = time.perf_counter()
            _take(stream, items)
            times[name].append((time.perf_counter() - start) / items)
    return {name: statistics.median(values) for name, values in times.items()}


def _take(stream: Iterator[Any], count: int) -> None:
    for _ in range(count):
        next(stream)


def printed_number(module: str, *arguments: object) -> float:
    """The number that `python -m module arguments` prints as its last line."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=RESULTS.parents[1], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout.splitlines()[-1])


def resident_memory() -> float:
    """Resident memory of this process now, GB."""
    return _own_memory("VmRSS")


def own_peak_memory() -> float:
    """Peak resident memory of this process so far, GB.

    Linux counts it anew when a program is started; `resource.getrusage` would give the peak of the
    process that started this one, where that was higher.
    """
    return _own_memory("VmHWM")


def _own_memory(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status).group(1)) / 2**20


def report(name: str, title: str, rows: list[dict[str, Any]]) -> None:
    """Print `rows` as a table and write them to results/<name>.json with machine and date."""
    columns = list(rows[0])
    print_table(title, columns, [[str(row[column]) for column in columns] for row in rows])
    write_json(RESULTS / f"{name}.json", {"title": title, **_machine(), "rows": rows})


def _machine() -> dict[str, Any]:
    import keras  # not above: benchmarks without TensorFlow measure memory and the start of workers
    import tensorflow as tf

    return {
        "date": date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "gpus": [gpu.name for gpu in tf.config.list_physical_devices("GPU")],
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "numpy": np.__version__,
        },
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()

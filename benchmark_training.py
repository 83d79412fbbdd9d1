"""Does mixed precision pay? `python benchmark_training.py 'BENCHMARK_TRAINING.BATCH_SIZES=[4,8]'`.

Needs no data. See `benchmark_training` for what it measures.
"""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from omegaconf import DictConfig

from benchmarks.training_cell import OUT_OF_MEMORY
from benchmarks.training_study import FAILED, CellKey, TrainingStudy
from utils.cli import run_command
from utils.log import console, progress
from utils.memory_limit import available_memory
from utils.results import results_folder, run_facts
from utils.runtime import setup_runtime

ROOT = Path(__file__).resolve().parent
# Keys besides the grid on which the time of a step depends
_SETTINGS = ("MODEL", "LOSS", "INPUT", "OUTPUT", "USE_MULTI_GPUS", "warmup_steps", "bench_steps")
_NO_MEMORY = re.compile(r"bad_alloc|out of memory|cannot allocate|resource temporarily", re.I)
_MUCH_MEMORY = 0.5  # of the available memory, by a process that crashed


def benchmark_training(cfg: DictConfig) -> dict[str, Any]:
    """Time a training step for every batch size, precision and compilation; one device.

    Every cell of the grid BENCHMARK_TRAINING runs in a process of its own, on random slices that
    lie on the device: `warmup_steps` steps that do not count, then `bench_steps` that do. A cell
    that does not fit into memory, or fails, says so, and the study goes on. The results are written
    after every cell; a study that was interrupted, or is asked for further cells, goes on with
    them, unless OVERWRITE is set or anything else has changed on which the times depend. Cells
    that failed are tried again.

    Returns:
        The rows of benchmark_training.json by "cells", and facts of the run.

    Raises:
        UserError: RESULTS_PATH cannot be written to, or a GPU was asked for that does not exist.
    """
    folder = results_folder(cfg)
    facts = run_facts(cfg, setup_runtime(cfg))
    settings = {key: facts["config"][key] for key in _SETTINGS}
    study = TrainingStudy(
        folder, settings | {key: facts[key] for key in ("versions", "hardware", "devices")}
    )
    if not cfg.OVERWRITE:
        study.read()
    cells = {_key(cfg, *cell): cell for cell in product(*cfg.BENCHMARK_TRAINING.values())}
    waiting = [key for key in cells if key not in study.cells]
    for key in progress(waiting, "Training benchmark", len(waiting), "cell", cfg.VERBOSE):
        study.cells[key] = _run_cell(facts["config"], *cells[key])
        study.write({"command": facts["command"]})
    study.print()
    console.print(f"Results: {folder / 'benchmark_training.json'}, .csv and .png")
    return {**facts, "cells": list(study.rows())}


def _key(cfg: DictConfig, batch_size: int, amp: bool, xla: bool) -> CellKey:
    return CellKey(batch_size, f"mixed_{cfg.OPTIMIZATION.AMP_DTYPE}" if amp else "float32", xla)


def _run_cell(config: dict[str, Any], batch_size: int, amp: bool, xla: bool) -> dict[str, Any]:
    cell = config | {
        "HYPER_PARAMETERS": config["HYPER_PARAMETERS"] | {"BATCH_SIZE": batch_size},
        "OPTIMIZATION": config["OPTIMIZATION"] | {"AMP": amp, "XLA": xla},
    }
    available = available_memory()
    with TemporaryFile("w+") as stdin, TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        json.dump(cell, stdin)
        stdin.seek(0)
        command = [sys.executable, "-m", "benchmarks.training_cell"]
        with subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=stdout, stderr=stderr) as run:
            try:
                _, status, usage = os.wait4(run.pid, 0)  # unlike run.wait() tells peak memory
            except BaseException:  # interrupted: the cell must not go on alone
                run.kill()
                raise
            run.returncode = os.waitstatus_to_exitcode(status)
        texts = [file.seek(0) or file.read() for file in (stdout, stderr)]
    much_memory = available is not None and 1024 * usage.ru_maxrss > _MUCH_MEMORY * available
    return cell_result(run.returncode, *texts, much_memory)


def cell_result(return_code: int, stdout: str, stderr: str, much_memory: bool) -> dict[str, Any]:
    """What the process of a cell has found, or how it died.

    The result counts even if the process crashed after it: TensorFlow may, when memory has run out.
    Where it crashes for want of memory without a word, that it had much of it must do as evidence.
    """
    last = stdout.strip().rpartition("\n")[2]
    if last.startswith("{"):
        return json.loads(last)
    lines = stderr.strip().splitlines()
    if return_code >= 0:
        return {"status": FAILED, "error": lines[-1] if lines else f"exit code {return_code}"}
    if return_code == -signal.SIGKILL or much_memory or _NO_MEMORY.search(stderr):
        return {"status": OUT_OF_MEMORY}
    death = f"died of {signal.Signals(-return_code).name}"
    return {"status": FAILED, "error": f"{death} after: {lines[-1]}" if lines else death}


if __name__ == "__main__":
    run_command(benchmark_training)

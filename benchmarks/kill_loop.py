"""Kill commands at random moments, run them again, and compare with a run that nobody disturbed.

`python -m benchmarks.kill_loop [--rounds 10] [--seed 0]`

Preparation, training, evaluation and prediction of a tiny phantom take turns. Every round starts
from the same files, kills the command and all its processes (SIGKILL) at a moment that the seed
chooses, looks for files that are half written, runs the command again (training with RESUME=True)
and holds every result against the undisturbed one. Exit code 1 if anything differs.

Commands run in forks of this process, which has imported TensorFlow once and does not use it.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from omegaconf import OmegaConf

import utils  # noqa: F401  (sets the environment before TensorFlow is imported)
from benchmarks.same_results import differences, half_written
from utils.config import validate_config
from utils.log import print_table

SIZE = 32  # px
SETTINGS = {
    "PHANTOM": {"TRAIN_CASES": 2, "VAL_CASES": 2, "SIZE": 64, "SLICES": 6},
    "INPUT": {"HEIGHT": SIZE, "WIDTH": SIZE},
    "MODEL": {"FILTERS": [4, 4, 8, 8, 8], "BACKBONE": {"TYPE": "unet3plus"}},
    "HYPER_PARAMETERS": {"EPOCHS": 2, "BATCH_SIZE": 4, "LEARNING_RATE": 1e-3},
    "USE_MULTI_GPUS": {"VALUE": False},
    "DATA_PREPARATION": {"WORKERS": 2},
    "VERBOSE": 0,
}
DRAW = ("data_preparation.synthetic", "write_phantoms", {})
SCANS = {"DATASET": {"VAL": {"IMAGES_PATH": "data/Training Batch 1"}}}
# Module, function, settings of their own
COMMANDS = {
    "prepare": ("data_preparation.preprocess_data", "preprocess_data", {}),
    "train": ("train", "train", {"RESUME": True}),
    "evaluate": ("evaluate", "evaluate", {}),
    "predict": ("predict", "predict", SCANS),
}
POLL_SECONDS = 0.005


def main() -> None:
    """Run the rounds and print how they ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for module, *_ in (DRAW, *COMMANDS.values()):
        import_module(module)
    with tempfile.TemporaryDirectory() as folder:
        failures = list(kill_loop(Path(folder), options.rounds, random.Random(options.seed)))
    print("\n".join([f"{options.rounds} rounds, {len(failures)} differences", *failures]))
    sys.exit(bool(failures))


def kill_loop(folder: Path, rounds: int, moments: random.Random) -> Iterator[str]:
    """The undisturbed run, then `rounds` disturbed ones; yields what differs."""
    work, log, seconds = folder / "work", folder / "log", {}
    run(DRAW, work, log)
    for name, command in COMMANDS.items():
        shutil.copytree(work, folder / f"before_{name}")
        started = time.perf_counter()
        run(command, work, log)
        seconds[name] = time.perf_counter() - started
        shutil.copytree(work, folder / f"after_{name}")

    rows = []
    for number in range(rounds):
        name = list(COMMANDS)[number % len(COMMANDS)]
        shutil.rmtree(work)
        shutil.copytree(folder / f"before_{name}", work)
        moment = moments.uniform(0, seconds[name])
        was_killed = run(COMMANDS[name], work, log, moment)
        problems = half_written(work)
        run(COMMANDS[name], work, log)
        problems += differences(folder / f"after_{name}", work)
        rows.append([number, name, moment, "killed" if was_killed else "ended before"])
        yield from (f"Round {number}, {name}, {moment:.3f} s: {text}" for text in problems)
    print_table("Rounds", ["Round", "Command", "Moment, s", "End"], rows)


def run(command: tuple, work: Path, log: Path, moment: float | None = None) -> bool:
    """Run `command` in a process group of its own, killed after `moment` s; whether it was.

    Raises:
        RuntimeError: it failed by itself.
    """
    process = os.fork()
    if process == 0:
        os._exit(_run_here(command, work, log))
    deadline = float("inf") if moment is None else time.perf_counter() + moment
    while (ended := os.waitpid(process, os.WNOHANG))[0] == 0:
        if time.perf_counter() > deadline:
            os.kill(process, signal.SIGSTOP)  # so that it starts no other process meanwhile
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return True
        time.sleep(POLL_SECONDS)
    if ended[1] != 0:
        raise RuntimeError(f"{command[0]} failed:\n{log.read_text()}")
    return False


def _run_here(command: tuple, work: Path, log: Path) -> int:
    module, function, changes = command
    os.setpgid(0, 0)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        cfg = validate_config(OmegaConf.merge(SETTINGS, changes, {"WORK_DIR": str(work)}))
        getattr(import_module(module), function)(cfg)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()

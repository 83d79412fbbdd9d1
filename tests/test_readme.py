"""Every command in README.md runs as written there, on phantom scans and with small sizes added."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.markdown import ROOT, code_blocks

SMALL = [
    "INPUT.HEIGHT=32", "INPUT.WIDTH=32", "VERBOSE=2", "HYPER_PARAMETERS.EPOCHS=1",
    "HYPER_PARAMETERS.BATCH_SIZE=2", "HYPER_PARAMETERS.STEPS_PER_EPOCH=2",
    "BENCHMARK_TRAINING.BATCH_SIZES=[1]", "BENCHMARK_TRAINING.XLA=[False]",
]  # fmt: skip
PHANTOM = ["PHANTOM.TRAIN_CASES=1", "PHANTOM.VAL_CASES=1", "PHANTOM.SIZE=32", "PHANTOM.SLICES=6"]
LAST_LINES = {
    "train.py": "Training throughput/FPS: ",
    "benchmark_inference.py": "Throughput/FPS: ",
    "evaluate.py": "Validation dice coefficient: ",
}


def commands() -> list[str]:
    blocks = code_blocks("README.md", "sh")
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def run(cwd: Path, *command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_every_command_is_of_a_kind_that_is_run_here():
    kinds = {line.split()[0] for line in commands() if "# needs" not in line}
    assert kinds == {"make", "python"}


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("make")])
def test_make_targets_exist(line):
    target = shlex.split(line, comments=True)[1]
    assert run(ROOT, "make", "--dry-run", target).returncode == 0
    assert re.search(rf"make {target}\b", (ROOT / ".ci" / "run").read_text())


@pytest.mark.timeout(1800)
def test_python_commands_in_the_order_of_the_readme(tmp_path):
    synthetic = str(ROOT / "data_preparation" / "synthetic.py")
    assert run(tmp_path, sys.executable, synthetic, *SMALL, *PHANTOM).returncode == 0
    for line in commands():
        if not line.startswith("python"):
            continue
        _, script, *overrides = shlex.split(line, comments=True)
        done = run(tmp_path, sys.executable, str(ROOT / script), *overrides, *SMALL)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if script in LAST_LINES and "RESUME=True" not in overrides:
            assert done.stdout.strip().splitlines()[-1].startswith(LAST_LINES[script])

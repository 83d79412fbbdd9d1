"""The command line: overrides, exit codes and messages, through Hydra in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from utils.cli import run_command
from utils.errors import FailedCasesError, UserError

def task(cfg):
    if cfg.SEED == 1:
        raise UserError("the user's mistake")
    if cfg.SEED == 2:
        raise FailedCasesError("case 7 failed")
    if cfg.SEED == 3:
        raise RuntimeError("a bug")
    print(cfg.SEED, cfg.MODEL.WEIGHTS_FILE_NAME, cfg.RESULTS_PATH, cfg.WORK_DIR)

run_command(task)
"""


def run(cwd: Path, *overrides: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", SCRIPT, str(ROOT), *overrides]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_overrides_and_recipe_reach_the_task_and_nothing_is_left_behind(tmp_path):
    done = run(tmp_path, "+experiment=phantom", "MODEL.TYPE=unet3plus", "+SEED=9")
    assert done.returncode == 0
    assert done.stdout.split() == ["9", "model_unet3plus", "demo/results", str(tmp_path)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "code", "parts"),
    [
        (["SEED=1"], 2, ["Error: the user's mistake"]),
        (["SEED=2"], 1, ["Error: case 7 failed"]),
        (["MODEL.TYP=a", "+foo=1", "INPUT.HEIGHT=40"], 2, ["MODEL.TYPE?", "foo", "32 or 48"]),
        (["USE_MULTI_GPUS.GPU_IDS=[4, 5"], 2, ["quote lists"]),
        (["+experiment=phantm"], 2, ["experiment/phantm"]),
    ],
)
def test_mistakes_end_with_one_message_and_no_traceback(tmp_path, overrides, code, parts):
    done = run(tmp_path, *overrides)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


def test_a_bug_keeps_its_traceback(tmp_path):
    done = run(tmp_path, "SEED=3")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "a bug" in done.stderr


def test_multirun_reports_the_worst_exit_code(tmp_path):
    done = run(tmp_path, "--multirun", "SEED=8,1,9", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stdout.splitlines() if "model_" in line] == ["8", "9"]

"""The table of several training runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from utils.errors import UserError
from utils.results_table import results_table

ROOT = Path(__file__).resolve().parents[1]


def write_run(folder: Path, seconds: float, speed: float | None, **changes) -> Path:
    run = {
        "devices": ["GPU:0"],
        "replicas": 1,
        "generator": "TF_GENERATOR",
        "xla": False,
        "amp": False,
        "timing": {
            "total_seconds": seconds,
            "latency_msec": speed and 16 / speed * 1e3,
            "throughput_samples_per_sec": speed,
        },
        "best": {"val_dice_coef": 0.95},
        **changes,
    }
    folder.mkdir()
    (folder / "train.json").write_text(json.dumps(run))
    return folder


def test_rows_times_and_speed_ups(tmp_path):
    slow = write_run(tmp_path / "slow", 36_061.4, 40.0)
    fast = write_run(
        tmp_path / "fast", 59.6, 100.0, replicas=8, generator="DALI_GENERATOR", xla=True, amp=True
    )
    (fast / "summary.json").write_text(json.dumps({"slices": {"dice_pooled_mean": 0.91234}}))
    short = write_run(tmp_path / "short", 1.0, None, devices=["CPU:0", "CPU:1"], replicas=2)
    header, rule, *rows = results_table([slow, fast / "train.json", short]).splitlines()
    assert header.count("|") == rule.count("|") == 10
    assert rows == [
        "| 1 | TF | No | No | 10:01:01 | 400.00 | 40.00 | 1.00 | 0.9500 |",
        "| 8 | DALI | Yes | Yes | 00:01:00 | 160.00 | 100.00 | 2.50 | 0.9123 |",
        "| 0 (CPU x 2) | TF | No | No | 00:00:01 | n/a | n/a | n/a | 0.9500 |",
    ]


def test_what_is_no_result_is_refused(tmp_path):
    (tmp_path / "train.json").write_text("[]")
    with pytest.raises(UserError, match=r"train.json: found no 'timing'"):
        results_table([tmp_path])
    command = [sys.executable, "-m", "utils.results_table", str(tmp_path / "nothing.json")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith("Error: The result of a training not found")
    run = subprocess.run(command[:-1], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith("usage: python -m utils.results_table")

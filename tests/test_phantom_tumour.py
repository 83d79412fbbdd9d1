"""The network learns tumours of phantom scans through the real commands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = (
    "data_preparation/synthetic.py",
    "data_preparation/preprocess_data.py",
    "train.py",
    "evaluate.py",
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_liver_and_tumours_of_phantom_scans(tmp_path: Path):
    for script in SCRIPTS:
        command = [sys.executable, str(ROOT / script), "+experiment=phantom_tumour", "VERBOSE=2"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "demo" / "results" / "summary.json").read_text())
    scans = summary["scans"]
    assert scans["liver"]["dice"]["mean"] >= 0.90
    assert scans["tumour"]["dice_global"] >= 0.60

"""A real CT scan through the real commands."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = [
    "DATASET.ALLOW_SHARED_CASES=True",
    "INPUT.HEIGHT=112",
    "INPUT.WIDTH=128",
    "MODEL.TYPE=unet3plus_deepsup",
    "MODEL.BACKBONE.TYPE=unet3plus",
    "MODEL.FILTERS=[8,16,32,64,128]",
    "MODEL.L2=0",
    "HYPER_PARAMETERS.BATCH_SIZE=3",
    "HYPER_PARAMETERS.EPOCHS=30",
    "HYPER_PARAMETERS.LEARNING_RATE=2e-3",
    "VERBOSE=2",
]


@pytest.mark.slow
def test_the_network_learns_the_liver_of_a_real_scan(real_ct: Path, tmp_path: Path):
    for batch in (1, 2):
        folder = tmp_path / "data" / f"Training Batch {batch}"
        folder.mkdir(parents=True)
        for name in ("volume-0.nii.gz", "segmentation-0.nii.gz"):
            shutil.copy(real_ct / name, folder)
    for script in ("data_preparation/preprocess_data.py", "train.py", "evaluate.py"):
        done = subprocess.run(
            [sys.executable, str(ROOT / script), *SETTINGS],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    label, score = done.stdout.strip().splitlines()[-1].split(": ")
    assert label == "Validation dice coefficient"
    assert float(score) >= 0.95

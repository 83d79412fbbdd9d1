"""A real CT scan through the real commands."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from utils.scan_metrics import compare_mask_files

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
    scan = "DATASET.VAL.IMAGES_PATH=data/Training Batch 1/volume-0.nii.gz"
    for script, *overrides in (
        ["data_preparation/preprocess_data.py"], ["train.py"], ["predict.py", scan], ["evaluate.py"]
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, str(ROOT / script), *SETTINGS, *overrides],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    mask = tmp_path / "results" / "predictions" / "segmentation-0.nii.gz"
    liver = compare_mask_files(real_ct / "segmentation-0.nii.gz", mask).liver
    assert liver.dice >= 0.93
    label, score = done.stdout.strip().splitlines()[-1].split(": ")
    assert label == "Validation dice coefficient"
    assert float(score) >= 0.95

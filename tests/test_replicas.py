"""Two replicas train, weigh and count exactly as one does; the predecessor's examples run."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from data_generators.dali_data_generator import import_dali
from tests.conftest import write_slices
from utils.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = ("unet3plus", "unet3plus_deepsup", "unet3plus_deepsup_cgm")

try:
    import_dali()
    HAS_DALI = True
except UserError:
    HAS_DALI = False  # the TF generator stands for it


def run(cwd: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_slices(folder / "data" / "train", {"28": 8, "29": 6}, seed=1)
    write_slices(folder / "data" / "val", {"0": 5, "1": 4}, seed=2)  # two batches and one slice
    return folder


@pytest.fixture(scope="module")
def runs(work_dir) -> dict[str, dict]:
    """What replicas_run.py prints, by variant."""
    script = str(ROOT / "tests" / "replicas_run.py")
    lines = run(ROOT, script, str(work_dir), "dali" if HAS_DALI else "tf").splitlines()
    return dict(zip(VARIANTS, json.loads(lines[-1]), strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_and_two_replicas_agree(runs, variant):
    found = runs[variant]
    assert set(found["one"]) == set(found["two"])
    for name, values in found["one"].items():
        assert found["two"][name] == pytest.approx(values, rel=1e-5), name
    assert found["apart"] < 1e-5, found["worst"]


def test_validation_was_part_of_it(runs):
    names = {"val_loss", "val_dice_coef", "val_focal", "val_d1_loss", "val_presence_loss"}
    assert names <= set(runs["unet3plus_deepsup_cgm"]["two"])


SMALL = ["INPUT.HEIGHT=32", "INPUT.WIDTH=32", "HYPER_PARAMETERS.EPOCHS=1", "VERBOSE=0",
         "HYPER_PARAMETERS.BATCH_SIZE=2", "MODEL.FILTERS=[8,8,8,8,8]"]  # fmt: skip
EXAMPLES = [
    "MODEL.TYPE=unet3plus MODEL.BACKBONE.TYPE=vgg19 USE_MULTI_GPUS.VALUE=False "
    "DATA_GENERATOR_TYPE=TF_GENERATOR OPTIMIZATION.AMP=False OPTIMIZATION.XLA=False",
    "MODEL.TYPE=unet3plus MODEL.BACKBONE.TYPE=vgg19 USE_MULTI_GPUS.VALUE=True "
    "USE_MULTI_GPUS.GPU_IDS=-1 "
    "DATA_GENERATOR_TYPE=TF_GENERATOR OPTIMIZATION.AMP=False OPTIMIZATION.XLA=False",
    "MODEL.TYPE=unet3plus MODEL.BACKBONE.TYPE=vgg19 USE_MULTI_GPUS.VALUE=True "
    "USE_MULTI_GPUS.GPU_IDS=-1 "
    "DATA_GENERATOR_TYPE=DALI_GENERATOR OPTIMIZATION.AMP=True OPTIMIZATION.XLA=True",
]


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [None, 2])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_examples_of_the_predecessor(work_dir, number, replicas):
    arguments = shlex.split(EXAMPLES[number - 1])
    if not HAS_DALI:
        arguments.append("DATA_GENERATOR_TYPE=TF_GENERATOR")
    if replicas:
        arguments.append(f"USE_MULTI_GPUS.CPU_REPLICAS={replicas}")
    trained = run(work_dir, str(ROOT / "train.py"), *arguments, *SMALL)
    assert trained.splitlines()[-1].startswith("Training throughput/FPS: ")
    result = json.loads((work_dir / "results" / "train.json").read_text())
    assert result["replicas"] == (replicas or 1)
    assert result["amp"] is result["xla"] is (number == 3)
    assert result["history"]["loss"][0] < 100  # a number, not NaN
    scored = run(work_dir, str(ROOT / "evaluate.py"), *arguments, *SMALL)
    dice = float(scored.splitlines()[-1].removeprefix("Validation dice coefficient: "))
    assert dice == pytest.approx(result["best"]["val_dice_coef"], abs=0.02 if number == 3 else 1e-4)

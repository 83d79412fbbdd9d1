"""The walks of CONTRIBUTING.md, performed on a copy of the project, which then trains."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from models.unet3plus import build_unet3plus
from tests.conftest import SIZE, write_slices
from tests.markdown import ROOT

WALKS = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EDITS = re.findall(r"```diff (\S+)\n(.*?)```", WALKS, flags=re.DOTALL)
WIDTHS = (4, 4, 8, 8, 8)
OVERRIDES = [
    "MODEL.BACKBONE.TYPE=vgg13", "LOSS.TYPE=dice_focal", f"MODEL.FILTERS={list(WIDTHS)}",
    f"INPUT.HEIGHT={SIZE}", f"INPUT.WIDTH={SIZE}", "VERBOSE=2", "USE_MULTI_GPUS.VALUE=False",
    "HYPER_PARAMETERS.EPOCHS=1", "HYPER_PARAMETERS.BATCH_SIZE=4",
]  # fmt: skip


def edited(text: str, edit: str) -> str:
    """`text` with the one place that an edit in diff form describes changed."""
    lines = edit.splitlines()
    before, after = (
        "\n".join(line[1:] for line in lines if line[:1] in (" ", sign)) for sign in "-+"
    )
    assert text.count(before) == 1, f"found {text.count(before)} times:\n{before}"
    return text.replace(before, after)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """What a training run with all three additions writes down."""
    project = tmp_path_factory.mktemp("project")
    for path in ROOT.iterdir():
        if (path / "__init__.py").is_file():
            shutil.copytree(path, project / path.name)
    shutil.copy(ROOT / "train.py", project)
    for file, edit in EDITS:
        path = project / file
        path.write_text(edited(path.read_text(encoding="utf-8"), edit), encoding="utf-8")
    write_slices(project / "data" / "train", {"28": 4})
    write_slices(project / "data" / "val", {"0": 4}, seed=1)
    command = [sys.executable, "train.py", *OVERRIDES]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((project / "results" / "train.json").read_text())


def test_every_walk_has_its_edits():
    sections = [part for part in WALKS.split("\n## ") if part.startswith("How to add")]
    assert len(sections) == 3
    assert all(section.count("```diff ") >= 2 for section in sections)


def test_the_backbone_is_the_one_trained(result):
    vgg16 = build_unet3plus("unet3plus", "vgg16", (SIZE, SIZE, 3), 2, WIDTHS).count_params()
    left_out = sum(9 * WIDTHS[level] ** 2 + WIDTHS[level] for level in (2, 3, 3))
    assert result["parameters"] == vgg16 - left_out


@pytest.mark.parametrize("name", ["dice", "focal", "foreground", "val_dice", "val_foreground"])
def test_loss_term_and_metric_are_logged(result, name):
    (value,) = result["history"][name]
    assert 0 <= value < 1
    assert "iou" not in result["history"]

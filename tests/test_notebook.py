"""The notebook runs from top to bottom."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

from data_preparation.synthetic import write_phantoms
from tests.conftest import SIZE

ROOT = Path(__file__).resolve().parents[1]


def test_the_notebook_runs_on_a_trained_network(trained):
    folder, make, _ = trained
    write_phantoms(
        make(
            DATA_PREPARATION={"SCANS_TRAIN_DATA_PATH": None},
            PHANTOM={"VAL_CASES": 1, "SIZE": SIZE, "SLICES": 6},
        )
    )
    notebook = nbformat.read(ROOT / "predict.ipynb", as_version=4)
    nbformat.validate(notebook)
    overrides = [
        f"WORK_DIR={folder}", "MODEL.TYPE=unet3plus_deepsup_cgm", "MODEL.BACKBONE.TYPE=unet3plus",
        "MODEL.FILTERS=[4,4,8,8,8]", f"INPUT.HEIGHT={SIZE}", f"INPUT.WIDTH={SIZE}", "VERBOSE=0",
    ]  # fmt: skip
    scan = folder / "data" / "Training Batch 1" / "volume-0.nii"
    settings = notebook.cells[1]
    before = settings.source
    settings.source = before.replace('["+experiment=phantom"]', repr(overrides)).replace(
        '"demo/data/Training Batch 1/volume-0.nii"', repr(str(scan))
    )
    assert settings.source != before
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    shown = [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    assert len(shown) == 3 + 2 + 1
    assert "MaskScores(dice=" in str(notebook.cells[-1].outputs)

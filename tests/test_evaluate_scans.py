"""From slices back to scans: round trips, common grids, and the evaluation of prepared scans."""

import csv
import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from data_preparation.native_grid import on_common_grid, view_spacing
from data_preparation.preprocess_data import preprocess_data
from data_preparation.synthetic import write_phantoms
from evaluate import evaluate
from tests.conftest import SIZE
from tests.scan_files import write_scan
from utils.case_records import cases_file, read_cases, write_cases
from utils.errors import UserError
from utils.images import read_mask
from utils.paths import natural_key
from utils.scan_metrics import compare_masks


def ellipsoid(slices: int, rows: int, columns: int) -> np.ndarray:
    """A liver-sized ellipsoid (label 1) with a lesion (2), as `view[slice, row, column]`."""
    z, y, x = np.ogrid[:slices, :rows, :columns]
    labels = np.zeros((slices, rows, columns), np.uint8)
    for label, centre, radii in (
        (1, (0.5, 0.45, 0.4), (0.42, 0.25, 0.28)),
        (2, (0.5, 0.5, 0.35), (0.2, 0.06, 0.07)),
    ):
        sizes = (slices, rows, columns)
        distance = sum(
            ((axis - c * n) / (r * n)) ** 2
            for axis, c, r, n in zip((z, y, x), centre, radii, sizes, strict=True)
        )
        labels[distance <= 1] = label
    return labels


def prepared_truth(cfg, tmp_path: Path, labels: np.ndarray, codes: str) -> tuple[dict, np.ndarray]:
    """The record and the PNG masks of a scan that was prepared from `labels`."""
    scans = tmp_path / "scans"
    write_scan(scans / "volume-4.nii", np.where(labels, 100, -50).astype(np.int16), codes)
    write_scan(scans / "segmentation-4.nii", labels, codes)
    preprocess_data(cfg)
    masks = sorted((tmp_path / "data/val/mask").iterdir(), key=lambda p: natural_key(p.name))
    record = read_cases(tmp_path / "data/val/cases.json")["4"]
    return record, np.stack([read_mask(path) for path in masks])


@pytest.mark.parametrize(
    ("fit", "size", "network", "least"),
    [("resize", 512, 320, 0.97), ("resize", 96, 160, 0.97), ("crop", 64, 96, 1.0)],
)
def test_a_perfect_network_scores_what_resampling_leaves(
    make_cfg, tmp_path, fit, size, network, least
):
    cfg = make_cfg(
        DATA_PREPARATION={
            "SCANS_TRAIN_DATA_PATH": None, "SCANS_VAL_DATA_PATH": "scans", "FIT": fit,
            "LABELS": "liver_and_tumour", "WORKERS": 1,
        },
        INPUT={"HEIGHT": network, "WIDTH": network}, OUTPUT={"CLASSES": 3},
    )  # fmt: skip
    labels = ellipsoid(5, size, size)
    record, masks = prepared_truth(cfg, tmp_path, labels, "PIR")
    common = on_common_grid(record, masks, masks)
    assert common.grid == "native"
    np.testing.assert_array_equal(common.truth, labels)
    scores = compare_masks(common.truth, common.prediction, common.spacing, with_tumour=True)
    for structure in (scores.liver, scores.tumour):
        assert least <= structure.dice <= 1
    if least == 1:
        assert scores.liver.mssd == 0

    Path(record["sources"]["segmentation"]["path"]).unlink()
    on_network = on_common_grid(record, masks, masks)
    assert on_network.grid == "network"
    np.testing.assert_array_equal(on_network.truth, masks)
    factor = size / network if fit == "resize" else 1
    np.testing.assert_allclose(on_network.spacing, (5.0, 0.8 * factor, 0.7 * factor), rtol=1e-5)


@pytest.mark.parametrize(
    ("codes", "spacing", "expected"),
    [
        ("RAS", (1, 2, 3), (3, 2, 1)),
        ("LPS", (1, 2, 3), (3, 2, 1)),
        ("PIR", (1, 2, 3), (2, 1, 3)),
        ("SRA", (1, 2, 3), (1, 3, 2)),
    ],
)
def test_spacing_in_the_order_of_the_view(codes, spacing, expected):
    assert view_spacing(spacing, codes) == expected


@pytest.fixture(scope="module")
def scans(trained, tmp_path_factory):
    """Two phantom scans prepared for the network of `trained`, and a maker of configurations."""
    folder, make_trained, _ = trained
    work = tmp_path_factory.mktemp("scans")
    shutil.copytree(folder / "checkpoint", work / "checkpoint")

    def make(**changes):
        return make_trained(
            WORK_DIR=str(work),
            DATA_PREPARATION={"SCANS_TRAIN_DATA_PATH": None, "WORKERS": 1},
            PHANTOM={"VAL_CASES": 2, "SIZE": 40, "SLICES": 6},
            **changes,
        )

    write_phantoms(make())
    preprocess_data(make())
    return work, make


def test_scans_are_scored_on_their_own_grid_and_reported(scans, capsys):
    work, make = scans
    summary = evaluate(make())
    out = capsys.readouterr().out
    assert out.strip().splitlines()[-1].startswith("Validation dice coefficient: ")
    assert "Scans, on the native grid" in out
    assert "left out of the mean" in out
    assert summary["scans"]["cases"] == 2
    assert json.loads((work / "results" / "summary.json").read_text()) == summary
    rows = list(csv.DictReader((work / "results" / "cases.csv").open()))
    assert [row["case"] for row in rows] == ["0", "1"]
    for row in rows:
        truth = nib.load(work / "data" / "Training Batch 1" / f"segmentation-{row['case']}.nii")
        voxel_ml = float(np.prod(truth.header.get_zooms())) / 1000
        expected = np.count_nonzero(np.asarray(truth.dataobj)) * voxel_ml
        assert float(row["truth_ml" if "truth_ml" in row else "liver_truth_ml"]) == pytest.approx(
            expected, rel=1e-5
        )
    page = (work / "results" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert SIZE != 40  # so that the native grid is not the network's


def test_the_official_convention_and_the_largest_component_are_honoured(scans):
    _, make = scans
    plain = evaluate(make())
    official = evaluate(make(EVALUATION={"CONVENTION": "lits"}))
    assert (plain["scans"]["convention"], official["scans"]["convention"]) == ("clear", "lits")
    kept = evaluate(make(EVALUATION={"KEEP_LARGEST_COMPONENT": True}))
    for one, other in zip(plain["scans"]["per_case"], kept["scans"]["per_case"], strict=True):
        assert other["liver_prediction_ml"] <= one["liver_prediction_ml"]


def test_a_case_that_cases_json_does_not_know_is_named_before_anything_runs(scans):
    work, make = scans
    path = cases_file(work / "data" / "val" / "images")
    records = read_cases(path)
    try:
        write_cases(path, {"0": records["0"]})
        with pytest.raises(UserError, match=r"case 1: .* slices, but cases.json has no such case"):
            evaluate(make())
        write_cases(path, {**records, "1": {**records["1"], "slices": 99}})
        with pytest.raises(UserError, match=r"case 1: .* slices, but cases.json has 99"):
            evaluate(make())
    finally:
        write_cases(path, records)

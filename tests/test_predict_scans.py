"""From a scan to a mask on its own grid, whatever its orientation; and what is refused."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813

from data_preparation.phantom import draw_phantom
from data_preparation.scan_inputs import find_scan_inputs, mask_name
from data_preparation.scans import read_scan
from predict import predict, segment_scan
from tests.conftest import SIZE
from tests.scan_files import ALL_AXIS_CODES, write_scan
from utils.errors import FailedCasesError, UserError


@pytest.fixture(scope="module")
def phantom_view() -> np.ndarray:
    """A phantom as `view[slice, row, column]`: drawn in LPS, so the axes only change places."""
    hu, _, _ = draw_phantom(seed=5, case=1, size=SIZE, slices=7)
    return np.ascontiguousarray(hu.transpose(2, 1, 0))


def weights_of(folder: Path) -> Path:
    return folder / "checkpoint" / "model_unet3plus_deepsup_cgm.weights.h5"


def scan_cfg(make, source: object, results: Path, **changes):
    return make(
        DATASET={"VAL": {"IMAGES_PATH": source, "MASK_PATH": None}},
        RESULTS_PATH=str(results),
        **changes,
    )


def test_masks_are_the_same_for_all_48_orientations(trained, phantom_view, tmp_path):
    _, make, _ = trained
    for codes in ALL_AXIS_CODES:
        write_scan(tmp_path / "scans" / f"volume-{codes}.nii", phantom_view, codes)
    predict(scan_cfg(make, str(tmp_path / "scans"), tmp_path / "results"))
    views = []
    for codes in ALL_AXIS_CODES:
        source = nib.load(tmp_path / "scans" / f"volume-{codes}.nii")
        written = tmp_path / "results" / "predictions" / f"segmentation-{codes}.nii.gz"
        mask = nib.load(written)
        assert mask.shape == source.shape
        np.testing.assert_array_equal(mask.affine, source.affine)
        assert mask.header.get_zooms() == source.header.get_zooms()
        assert mask.get_data_dtype() == np.uint8
        views.append(np.asarray(read_scan(written).stored))
    assert len(views) == 48
    assert 0 < views[0].mean() < 1
    for view in views[1:]:
        np.testing.assert_array_equal(view, views[0])


def test_an_oblique_scan_keeps_its_geometry_for_nibabel_and_simpleitk(
    trained, phantom_view, tmp_path
):
    folder, make, _ = trained
    straight = write_scan(tmp_path / "straight" / "volume-1.nii", phantom_view, "LPS")
    angle = np.deg2rad(12)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    image = nib.load(straight)
    oblique = tmp_path / "oblique" / "volume-1.nii"
    oblique.parent.mkdir()
    nib.save(nib.Nifti1Image(np.asarray(image.dataobj), turn @ image.affine), oblique)
    mask_path, sheet = predict(scan_cfg(make, str(oblique), tmp_path / "results"))
    assert (mask_path.name, sheet.name) == ("segmentation-1.nii.gz", "segmentation-1.png")
    mask = nib.load(mask_path)
    np.testing.assert_allclose(mask.affine, turn @ image.affine, atol=1e-5)
    np.testing.assert_array_equal(
        np.asarray(mask.dataobj), np.asarray(segment_scan(straight, weights_of(folder)).dataobj)
    )
    scan_itk, mask_itk = sitk.ReadImage(str(oblique)), sitk.ReadImage(str(mask_path))
    for geometry in ("GetSize", "GetSpacing", "GetOrigin", "GetDirection"):
        one, other = getattr(scan_itk, geometry)(), getattr(mask_itk, geometry)()
        np.testing.assert_allclose(one, other, atol=1e-5, err_msg=geometry)


def test_the_command_and_the_function_agree_whatever_the_batch_size(
    trained, phantom_view, tmp_path
):
    folder, make, _ = trained
    scan = write_scan(tmp_path / "test-volume-3.nii.gz", phantom_view)
    expected = np.asarray(segment_scan(scan, weights_of(folder), batch_size=3).dataobj)
    for batch_size in (1, 5, 16):
        mask_path, _ = predict(
            scan_cfg(
                make, [str(scan)], tmp_path / "results", OVERWRITE=True,
                HYPER_PARAMETERS={"BATCH_SIZE": batch_size},
            )
        )  # fmt: skip
        assert mask_path.name == "test-segmentation-3.nii.gz"
        np.testing.assert_array_equal(np.asarray(nib.load(mask_path).dataobj), expected)


def test_what_is_there_is_left_unless_the_scan_has_changed(trained, phantom_view, tmp_path):
    _, make, _ = trained
    scans, results = tmp_path / "scans", tmp_path / "results"
    for case in ("0", "1"):
        write_scan(scans / f"volume-{case}.nii", phantom_view)
    write_scan(scans / "segmentation-0.nii", np.zeros_like(phantom_view, np.uint8))
    assert len(predict(scan_cfg(make, str(scans), results))) == 4
    assert predict(scan_cfg(make, str(scans), results)) == []
    write_scan(scans / "volume-1.nii", phantom_view[::-1])
    assert [path.name for path in predict(scan_cfg(make, str(scans), results))] == [
        "segmentation-1.nii.gz", "segmentation-1.png",
    ]  # fmt: skip
    assert len(predict(scan_cfg(make, str(scans), results, OVERWRITE=True))) == 4


def test_one_slice_and_all_air_give_masks(trained, tmp_path):
    _, make, _ = trained
    scans = tmp_path / "scans"
    write_scan(scans / "volume-1.nii", np.full((1, 20, 24), 50, np.int16))
    write_scan(scans / "volume-2.nii", np.full((4, 20, 24), -1000, np.int16))
    predict(scan_cfg(make, str(scans), tmp_path / "results"))
    shapes = [
        nib.load(tmp_path / "results" / "predictions" / f"segmentation-{case}.nii.gz").shape
        for case in (1, 2)
    ]
    assert shapes == [(24, 20, 1), (24, 20, 4)]


def save(path: Path, array: np.ndarray) -> None:
    nib.save(nib.Nifti1Image(array, np.diag([1, 1, 2, 1])), path)


BAD_SCANS = {
    "4-D": (lambda path: save(path, np.zeros((4, 4, 3, 2), np.int16)), "expected three axes"),
    "2-D": (lambda path: save(path, np.zeros((4, 4), np.int16)), "expected three axes"),
    "NaN": (lambda path: save(path, np.full((4, 4, 3), np.nan, np.float32)), "NaN or infinite"),
    "text": (lambda path: path.write_text("no scan"), "damaged, or not a NIfTI file"),
}


@pytest.mark.parametrize("kind", BAD_SCANS)
def test_bad_scans_are_named_and_the_others_are_predicted(trained, phantom_view, tmp_path, kind):
    _, make, _ = trained
    write, message = BAD_SCANS[kind]
    scans, results = tmp_path / "scans", tmp_path / "results"
    write_scan(scans / "volume-0.nii", phantom_view)
    write(scans / "volume-9.nii")
    with pytest.raises(FailedCasesError, match=message) as error:
        predict(scan_cfg(make, str(scans), results))
    assert "volume-9.nii" in str(error.value)
    assert sorted(path.name for path in (results / "predictions").iterdir()) == [
        "segmentation-0.nii.gz", "segmentation-0.png",
    ]  # fmt: skip


def test_folders_and_lists_of_scans_and_slices_are_told_apart(tmp_path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("volume-10.nii", "volume-9.nii.gz", "segmentation-9.nii.gz"):
        (folder / name).touch()
    found = find_scan_inputs("mixed", tmp_path, "key")
    assert [path.name for path in found] == ["volume-9.nii.gz", "volume-10.nii"]
    (folder / "image_0_0.png").touch()
    with pytest.raises(UserError, match="mixes scans .volume-9.nii.gz, ….* and slice images"):
        find_scan_inputs("mixed", tmp_path, "key")
    with pytest.raises(UserError, match="in one list"):
        find_scan_inputs(["mixed/volume-10.nii", "mixed/image_0_0.png"], tmp_path, "key")
    with pytest.raises(UserError, match="scans not found"):
        find_scan_inputs("mixed/volume-8.nii", tmp_path, "key")
    assert find_scan_inputs(["mixed/image_0_0.png"], tmp_path, "key") is None


@pytest.mark.parametrize(
    ("scan", "mask"),
    [
        ("volume-3.nii", "segmentation-3.nii.gz"),
        ("test-volume-3.nii.gz", "test-segmentation-3.nii.gz"),
        ("patient.1.nii", "patient.1_segmentation.nii.gz"),
    ],
)
def test_mask_names(scan, mask):
    assert mask_name(Path(scan)) == mask


def test_mistakes_are_refused_before_anything_is_predicted(trained, phantom_view, tmp_path):
    _, make, _ = trained
    scan = str(write_scan(tmp_path / "volume-0.nii", phantom_view))
    twin = str(write_scan(tmp_path / "other" / "volume-0.nii", phantom_view))
    blocked = tmp_path / "file"
    blocked.touch()
    results = tmp_path / "results"
    for cfg, message in [
        (scan_cfg(make, [scan, twin], results), "would both be written"),
        (scan_cfg(make, scan, blocked), "RESULTS_PATH: cannot write to"),
        (
            scan_cfg(make, scan, results, DATA_PREPARATION={"RESIZED_HEIGHT": 64}),
            "RESIZED_HEIGHT and RESIZED_WIDTH: found 64 x 32",
        ),
        (
            scan_cfg(make, scan, results, DATA_PREPARATION={"SCAN_MAX_VALUE": 200}),
            "SCAN_MAX_VALUE: found 200.*trained with 250",
        ),
        (
            scan_cfg(make, scan, results, MODEL={"WEIGHTS_FILE_NAME": "nowhere"}),
            "no weights at",
        ),
    ]:
        with pytest.raises(UserError, match=message):
            predict(cfg)
    assert not list(results.rglob("*.nii.gz"))

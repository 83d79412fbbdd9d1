import itertools
import math

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813
import surface_distance
from scipy.spatial.distance import cdist

from utils import scan_metrics
from utils.errors import UserError
from utils.scan_metrics import compare_mask_files, compare_masks, largest_component

ISOTROPIC = (1.0, 1.0, 1.0)
ANISOTROPIC = (0.7, 0.7, 5.0)
DISTANCES = ("assd", "mssd", "hd95", "rmsd")


def box(*bounds: tuple[int, int], shape: tuple[int, ...] = (16, 16, 16)) -> np.ndarray:
    mask = np.zeros(shape, np.uint8)
    mask[tuple(slice(*bound) for bound in bounds)] = 1
    return mask


def ellipsoid(
    centre: tuple[float, ...], radius_mm: float, spacing: tuple[float, ...]
) -> np.ndarray:
    grid = np.ogrid[0:40, 0:40, 0:24]
    squares = [((g - c) * s) ** 2 for g, c, s in zip(grid, centre, spacing, strict=True)]
    return (sum(squares) <= radius_mm**2).astype(np.uint8)


def blobs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    coarse = random.random((2, 4, 4, 3)) < 0.45
    truth, prediction = coarse.repeat(3, axis=1).repeat(3, axis=2).repeat(3, axis=3)
    return truth.astype(np.uint8), np.roll(prediction | truth, 1, axis=0).astype(np.uint8)


def on_surface(mask: np.ndarray) -> np.ndarray:
    """The definition itself: voxels with a background voxel among their 18 neighbours."""
    padded = np.pad(mask > 0, 1)
    neighbours = [
        step for step in itertools.product((-1, 0, 1), repeat=3) if 0 < np.dot(step, step) < 3
    ]
    return (
        np.array(
            [
                voxel
                for voxel in np.argwhere(padded)
                if not all(padded[tuple(voxel + step)] for step in neighbours)
            ]
        )
        - 1
    )


def to_image(mask: np.ndarray, spacing: tuple[float, ...]) -> sitk.Image:
    image = sitk.GetImageFromArray(mask.astype(np.uint8).transpose())
    image.SetSpacing(spacing)
    return image


def test_equal_masks_are_perfect():
    liver = compare_masks(box((2, 9), (2, 9), (2, 9)), box((2, 9), (2, 9), (2, 9)), ISOTROPIC).liver
    assert (liver.dice, liver.voe, liver.rvd) == (1, 0, 0)
    assert [getattr(liver, name) for name in DISTANCES] == [0, 0, 0, 0]


def test_cube_shifted_along_one_axis():
    truth, prediction = box((2, 12), (2, 12), (2, 12)), box((4, 14), (2, 12), (2, 12))
    liver = compare_masks(truth, prediction, ANISOTROPIC).liver
    assert liver.dice == pytest.approx(0.8)
    assert liver.voe == pytest.approx(1 - 8 / 12)
    assert liver.rvd == 0
    assert liver.mssd == pytest.approx(2 * 0.7)
    assert liver.truth_ml == liver.prediction_ml == pytest.approx(1000 * 0.7 * 0.7 * 5 / 1000)
    assert (liver.intersection, liver.truth_voxels, liver.prediction_voxels) == (800, 1000, 1000)


def test_two_single_voxels_are_as_far_apart_as_their_centres():
    truth, prediction = box((3, 4), (3, 4), (3, 4)), box((4, 5), (5, 6), (4, 5))
    liver = compare_masks(truth, prediction, ANISOTROPIC).liver
    expected = math.sqrt(0.7**2 + 1.4**2 + 5**2)
    assert [getattr(liver, name) for name in DISTANCES] == pytest.approx([expected] * 4)
    assert (liver.dice, liver.voe, liver.rvd) == (0, 1, 0)


@pytest.mark.parametrize("margin", [0, 4])
def test_voxel_in_the_centre_of_a_cube(margin):
    """The cube's surface is found also where the cube fills the array."""
    truth = np.pad(np.ones((5, 5, 5), np.uint8), margin)
    prediction = np.pad(np.ones((1, 1, 1), np.uint8), 2 + margin)
    liver = compare_masks(truth, prediction, ISOTROPIC).liver
    squares = np.repeat([4, 5, 6, 8, 9, 12], [6, 24, 24, 12, 24, 8])  # the surface's 98 voxels
    assert liver.assd == pytest.approx((2 + np.sqrt(squares).sum()) / 99)
    assert liver.rmsd == pytest.approx(math.sqrt((4 + squares.sum()) / 99))
    assert liver.mssd == liver.hd95 == pytest.approx(math.sqrt(12))
    assert liver.rvd == pytest.approx((1 - 125) / 125)


def test_hd95_is_the_larger_of_the_two_directions():
    truth = box((0, 1), (0, 1), (0, 1), shape=(101, 1, 1))
    prediction = box((0, 101), (0, 1), (0, 1), shape=(101, 1, 1))
    assert compare_masks(truth, prediction, ISOTROPIC).liver.hd95 == pytest.approx(95)
    assert compare_masks(prediction, truth, ISOTROPIC).liver.hd95 == pytest.approx(95)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spacing", [ISOTROPIC, ANISOTROPIC])
def test_distances_follow_the_definition(seed, spacing):
    truth, prediction = blobs(seed)
    surfaces = [on_surface(mask) for mask in (truth, prediction)]
    pairs = cdist(*[surface * spacing for surface in surfaces])
    forth, back = pairs.min(axis=1), pairs.min(axis=0)
    both = np.concatenate([forth, back])
    liver = compare_masks(truth, prediction, spacing).liver
    assert liver.assd == pytest.approx(both.mean())
    assert liver.rmsd == pytest.approx(np.sqrt((both**2).mean()))
    assert liver.hd95 == pytest.approx(max(np.percentile(forth, 95), np.percentile(back, 95)))

    images = []
    for surface in surfaces:
        mask = np.zeros_like(truth)
        mask[tuple(surface.T)] = 1
        images.append(to_image(mask, spacing))
    hausdorff = sitk.HausdorffDistanceImageFilter()
    hausdorff.Execute(*images)
    assert liver.mssd == pytest.approx(hausdorff.GetHausdorffDistance(), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_overlap_agrees_with_simpleitk(seed):
    truth, prediction = blobs(seed)
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(to_image(prediction, ANISOTROPIC), to_image(truth, ANISOTROPIC))
    liver = compare_masks(truth, prediction, ANISOTROPIC).liver
    assert liver.dice == pytest.approx(overlap.GetDiceCoefficient())
    assert liver.voe == pytest.approx(1 - overlap.GetJaccardCoefficient())
    similarity = 2 * (liver.prediction_ml - liver.truth_ml) / (liver.prediction_ml + liver.truth_ml)
    assert abs(similarity) == pytest.approx(abs(overlap.GetVolumeSimilarity()))


@pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")
@pytest.mark.parametrize("spacing", [ISOTROPIC, ANISOTROPIC])
def test_shifted_spheres_agree_with_deepmind(spacing):
    truth, prediction = ellipsoid((18, 20, 12), 10, spacing), ellipsoid((23, 20, 12), 10, spacing)
    theirs = surface_distance.compute_surface_distances(truth > 0, prediction > 0, spacing)
    liver = compare_masks(truth, prediction, spacing).liver
    assert liver.mssd == pytest.approx(surface_distance.compute_robust_hausdorff(theirs, 100))
    assert liver.dice == pytest.approx(
        surface_distance.compute_dice_coefficient(truth > 0, prediction > 0)
    )


@pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")
def test_nested_spheres_agree_with_deepmind():
    """Their surfaces lie between voxels and are weighted by area, so means agree but roughly."""
    truth, prediction = (
        ellipsoid((20, 20, 12), 11, ISOTROPIC),
        ellipsoid((20, 20, 12), 7, ISOTROPIC),
    )
    theirs = surface_distance.compute_surface_distances(truth > 0, prediction > 0, ISOTROPIC)
    assert compare_masks(truth, prediction, ISOTROPIC).liver.assd == pytest.approx(
        np.mean(surface_distance.compute_average_surface_distance(theirs)), rel=0.05
    )


FULL, NOTHING = box((2, 4), (2, 4), (2, 4)), box((0, 0), (0, 0), (0, 0))


@pytest.mark.parametrize(
    ("truth", "prediction", "convention", "expected", "distance"),
    [
        (NOTHING, NOTHING, "clear", (None, None, None), None),
        (NOTHING, FULL, "clear", (0, 1, None), None),
        (FULL, NOTHING, "clear", (0, 1, -1), None),
        (NOTHING, NOTHING, "lits", (0, 1, 9001), 9001),
        (NOTHING, FULL, "lits", (0, 1, 9001), 9001),
        (FULL, NOTHING, "lits", (0, 1, 9001), 9001),
        (FULL, FULL * 2, "lits", (0, 1, 9001), 9001),  # no voxel of label 1: "no liver predicted"
        (FULL, FULL * 2, "clear", (1, 0, 0), 0),
    ],
)
def test_empty_liver(truth, prediction, convention, expected, distance):
    liver = compare_masks(truth, prediction, ISOTROPIC, convention).liver
    assert (liver.dice, liver.voe, liver.rvd) == expected
    assert [getattr(liver, name) for name in DISTANCES] == [distance] * 4


@pytest.mark.parametrize(("convention", "rvd"), [("clear", 2 / 8), ("lits", -2 / 10)])
def test_sign_and_denominator_of_rvd(convention, rvd):
    truth, prediction = box((0, 8), (0, 1), (0, 1)), box((0, 10), (0, 1), (0, 1))
    assert compare_masks(truth, prediction, ISOTROPIC, convention).liver.rvd == pytest.approx(rvd)


def test_liver_holds_its_tumours_and_burden_is_their_share():
    truth, prediction = box((0, 10), (0, 1), (0, 1)), box((0, 10), (0, 1), (0, 1))
    truth[2:6], prediction[4:9] = truth[2:6] * 2, prediction[4:9] * 2
    scores = compare_masks(truth, prediction, ISOTROPIC, with_tumour=True)
    assert scores.liver.dice == 1
    assert scores.tumour.dice == pytest.approx(2 * 2 / (4 + 5))
    assert (scores.lesions.truth_burden, scores.lesions.prediction_burden) == (0.4, 0.5)
    without = compare_masks(truth, prediction, ISOTROPIC)
    assert (without.liver, without.tumour, without.lesions) == (scores.liver, None, None)


@pytest.mark.parametrize(
    ("truth", "prediction", "convention", "expected"),
    [
        (NOTHING, FULL, "clear", (None, None)),
        (FULL, NOTHING, "clear", (0, 0)),
        (FULL, NOTHING, "lits", (0, 9001)),
        (FULL, FULL * 2, "lits", (0, 9001)),
        (FULL, FULL * 2, "clear", (0, 1)),
    ],
)
def test_tumour_burden_without_liver(truth, prediction, convention, expected):
    lesions = compare_masks(truth, prediction, ISOTROPIC, convention, with_tumour=True).lesions
    assert (lesions.truth_burden, lesions.prediction_burden) == expected


def liver_with_lesions(length: int, *lesions: tuple[int, int]) -> np.ndarray:
    mask = np.ones((length, 1, 1), np.uint8)
    for start, stop in lesions:
        mask[start:stop] = 2
    return mask


def test_official_tumour_scores_are_means_over_detected_lesions():
    truth = liver_with_lesions(40, (0, 10), (15, 19), (30, 32))
    prediction = liver_with_lesions(40, (0, 8), (15, 19))
    scores = compare_masks(truth, prediction, ISOTROPIC, "lits", with_tumour=True)
    assert scores.tumour.dice == pytest.approx(2 * 12 / (16 + 12))
    assert scores.tumour.voe == pytest.approx((0.2 + 0) / 2)
    assert scores.tumour.rvd == pytest.approx((2 / 8 + 0) / 2)
    assert scores.tumour.mssd == pytest.approx((2 + 0) / 2)
    assert [lesion.dice for lesion in scores.lesions.detected] == pytest.approx([16 / 18, 1])
    whole = compare_masks(truth, prediction, ISOTROPIC, "clear", with_tumour=True).tumour
    assert whole.voe == pytest.approx(1 - 12 / 16)


def test_official_scorer_skips_detected_lesions_when_its_count_is_zero():
    """One detected lesion, less one for the joined pair that is not detected."""
    truth = liver_with_lesions(20, (0, 1), (9, 10), (15, 18))
    prediction = liver_with_lesions(20, (0, 10), (15, 18))
    scores = compare_masks(truth, prediction, ISOTROPIC, "lits", with_tumour=True)
    assert scores.lesions.detections[0.5] == (0, 2, 3)
    assert scores.lesions.detected == []
    assert scores.tumour.voe is None


@pytest.mark.parametrize(("convention", "dice"), [("clear", None), ("lits", 1)])
def test_tumour_that_is_in_neither_mask(convention, dice):
    tumour = compare_masks(FULL, FULL, ISOTROPIC, convention, with_tumour=True).tumour
    assert (tumour.dice, tumour.voe, tumour.assd) == (dice, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FULL, FULL[:-1], ISOTROPIC), "one 3-D shape"),
        ((FULL[0], FULL[0], ISOTROPIC), "one 3-D shape"),
        ((FULL, FULL, (1, 1)), "three positive sizes"),
        ((FULL, FULL, (1, 1, 0)), "three positive sizes"),
        ((FULL, FULL, ISOTROPIC, "LITS"), "expected one of clear, lits"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(UserError, match=message):
        compare_masks(*arguments)


def test_files_are_compared_in_mm(tmp_path, monkeypatch):
    truth, prediction = box((2, 12), (2, 12), (2, 12)), box((2, 12), (2, 12), (3, 13))
    affine = np.diag([-0.7, 0.7, 5, 1])
    nibabel.save(nibabel.Nifti1Image(truth, affine), tmp_path / "segmentation-0.nii")
    nibabel.save(nibabel.Nifti1Image(prediction, affine), tmp_path / "prediction-0.nii.gz")
    warnings = []
    monkeypatch.setattr(scan_metrics.logger, "warning", lambda *message: warnings.append(message))
    paths = tmp_path / "segmentation-0.nii", tmp_path / "prediction-0.nii.gz"
    scores = compare_mask_files(*paths)
    assert scores == compare_masks(truth, prediction, [float(np.float32(0.7))] * 2 + [5.0])
    assert scores.liver.mssd == pytest.approx(5)
    assert not warnings
    nibabel.save(nibabel.Nifti1Image(prediction, np.diag([0.7, 0.7, 5, 1])), paths[1])
    assert compare_mask_files(*paths) == scores
    assert len(warnings) == 1


def test_unreadable_files(tmp_path):
    (tmp_path / "text.nii").write_text("not a scan")
    for name in ("text.nii", "missing.nii"):
        with pytest.raises(UserError, match=f"{name}: cannot be read"):
            compare_mask_files(tmp_path / name, tmp_path / name)


def test_largest_component_keeps_liver_with_its_tumour():
    labels = box((0, 3), (0, 3), (0, 3))
    labels[1, 1, 1] = 2
    expected = labels.copy()
    labels[3, 3, 3] = 1  # touches by a corner only
    labels[10:12] = 0
    labels[10, :5, 0] = 2
    kept = largest_component(labels)
    assert kept.dtype == labels.dtype
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_array_equal(largest_component(NOTHING), NOTHING)

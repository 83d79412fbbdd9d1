"""Random changes of slices: what is drawn, what becomes of image and mask, when they repeat."""

import itertools
import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
import tensorflow as tf

from data_generators.augmentation import Augmentation, AugmentationRanges
from data_generators.change_slice import change_slice
from data_generators.data_generator import get_data_generator
from data_generators.epoch_order import EpochOrder
from data_generators.preview import EPOCHS, SLICES, preview
from data_generators.slice_reader import SliceReader
from data_generators.tf_data_generator import SliceSequence
from tests.conftest import SIZE
from utils.errors import UserError
from utils.runtime import Runtime
from utils.slice_files import list_split

HEIGHT, WIDTH = 60, 80
NONE = AugmentationRanges(
    rotation=0, scale=(1, 1), shift=0, horizontal_flip=0, vertical_flip=0, brightness=0,
    contrast=(1, 1), noise=0, blur=0, elastic_amplitude=0, elastic_grid=20, hu_window=450,
)  # fmt: skip
GEOMETRY = {"rotation": 30, "scale": (0.8, 1.25), "shift": 0.1, "horizontal_flip": 0.5}
GREY = {"brightness": 45, "contrast": (0.5, 2), "noise": 9, "blur": 1.5}
ELASTIC = {"elastic_amplitude": 6}
CPU = Runtime(tf.distribute.get_strategy(), ("CPU:0",), amp=False, xla=False)


def drawn(count: int = 200, seed: int = 0, **ranges) -> list:
    """Changes of as many slices."""
    source = Augmentation(replace(NONE, **ranges), HEIGHT, WIDTH, seed)
    return [source.draw(0, place) for place in range(count)]


def noise_image(channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).random((HEIGHT, WIDTH, channels), np.float32)


def noise_mask() -> np.ndarray:
    return np.random.default_rng(1).choice([0, 3, 7], (HEIGHT, WIDTH)).astype(np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_no_range_changes_nothing(channels):
    image, mask = noise_image(channels), noise_mask()
    for change in drawn(3):
        changed, changed_mask = change_slice(image, mask, change)
        np.testing.assert_array_equal(changed, image)
        np.testing.assert_array_equal(changed_mask, mask)
        assert (changed.dtype, changed_mask.dtype) == (np.float32, np.uint8)


@pytest.mark.parametrize(
    ("flips", "axes"),
    [({"horizontal_flip": 1}, [1]), ({"vertical_flip": 1}, [0]),
     ({"horizontal_flip": 1, "vertical_flip": 1}, [0, 1])],
)  # fmt: skip
def test_flips_are_exact(flips, axes):
    image, mask = noise_image(), noise_mask()
    changed, changed_mask = change_slice(image, mask, drawn(1, **flips)[0])
    np.testing.assert_array_equal(changed, np.flip(image, axes))
    np.testing.assert_array_equal(changed_mask, np.flip(mask, axes))


def test_enlarging_twice_repeats_every_pixel_of_the_middle():
    mask = noise_mask()
    _, changed = change_slice(noise_image(), mask, drawn(1, scale=(2, 2))[0])
    middle = mask[HEIGHT // 4 : -HEIGHT // 4, WIDTH // 4 : -WIDTH // 4]
    np.testing.assert_array_equal(changed, middle.repeat(2, axis=0).repeat(2, axis=1))


def test_ranges_are_used_and_kept():
    changes = drawn(500, **GEOMETRY, **GREY, **ELASTIC)
    angles, scales, shifts, mirrored = [], [], [], []
    for change in changes:
        (a, b, _), (c, d, _) = change.matrix
        mirrored.append(a * d - b * c < 0)
        sign = -1 if mirrored[-1] else 1
        scales.append(1 / math.hypot(a, b))
        angles.append(math.degrees(math.atan2(-sign * b, sign * a)))
        forward = np.linalg.inv(np.vstack([change.matrix, [0, 0, 1]]))
        moved = forward @ [WIDTH / 2, HEIGHT / 2, 1] - [WIDTH / 2, HEIGHT / 2, 1]
        shifts.append(moved[:2] / [WIDTH, HEIGHT])
    brightness = [450 * (change.offset - (1 - change.gain) / 2) for change in changes]
    for values, low, high in [
        (angles, -30, 30), (scales, 0.8, 1.25), (shifts, -0.1, 0.1), (brightness, -45, 45),
        ([change.gain for change in changes], 0.5, 2),
        ([change.noise * 450 for change in changes], 0, 9),
        ([change.blur for change in changes], 0, 1.5),
        ([change.control for change in changes], -6, 6),
    ]:  # fmt: skip
        margin = 0.02 * (high - low)
        assert low - 1e-9 <= np.min(values) <= low + margin
        assert high - margin <= np.max(values) <= high + 1e-9
        assert np.mean(values) == pytest.approx((low + high) / 2, abs=3 * margin)
    assert 0.4 < np.mean(mirrored) < 0.6


def test_turning_is_anticlockwise():
    """A point to the right of the centre rises with a positive angle: `matrix` leads back to it."""
    [change] = [change for change in drawn(2, rotation=90) if change.matrix[0, 1] < 0][:1]
    angle = math.acos(change.matrix[0, 0])
    above = [WIDTH / 2 + 10 * math.cos(angle), HEIGHT / 2 - 10 * math.sin(angle), 1]
    np.testing.assert_allclose(change.matrix @ above, [WIDTH / 2 + 10, HEIGHT / 2], atol=1e-9)


@pytest.mark.parametrize("ranges", [GEOMETRY, GEOMETRY | ELASTIC])
@pytest.mark.parametrize("point", [(40, 30), (25, 38)])
def test_image_and_mask_keep_together(ranges, point):
    """A disc lands at the same place in all channels and in the mask, where `matrix` puts it."""
    mask = cv2.circle(np.zeros((HEIGHT, WIDTH), np.uint8), point, 5, 2, thickness=-1)
    image = np.repeat((mask > 0).astype(np.float32)[..., None], 3, axis=2)
    for change in drawn(20, **ranges):
        changed, changed_mask = change_slice(image, mask, change)
        assert set(np.unique(changed_mask)) == {0, 2}
        np.testing.assert_array_equal(changed[..., 0], changed[..., 2])
        y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
        centres = [
            [np.average(axis, weights=weights) for axis in (x, y)]
            for weights in (changed[..., 1], changed_mask)
        ]
        assert math.dist(*centres) < 0.5
        if change.control is None:
            back = change.matrix @ [*centres[1], 1]
            assert math.dist(back, np.add(point, 0.5)) < 0.5


def test_masks_keep_their_classes_and_take_background_from_outside():
    image, mask = noise_image() * 0 + 1, noise_mask() * 0 + 7
    for change in drawn(20, **GEOMETRY, **ELASTIC):
        assert set(np.unique(change_slice(image, noise_mask(), change)[1])) == {0, 3, 7}
        changed, changed_mask = change_slice(image, mask, change)
        assert set(np.unique(changed_mask)) <= {0, 7}
        edge = {"kernel": np.ones((3, 3)), "borderType": cv2.BORDER_CONSTANT}
        inside = cv2.erode(changed_mask, borderValue=0, **edge) > 0
        outside = cv2.dilate(changed_mask, borderValue=7, **edge) == 0
        assert (changed[inside] > 0.999).all()
        assert (changed[outside] == 0).all()


def test_displacements_are_smooth_bounded_and_do_not_fold():
    for change in drawn(10, elastic_amplitude=8, elastic_grid=20):
        plain = change._replace(control=None).positions(HEIGHT, WIDTH)
        moved = change.positions(HEIGHT, WIDTH)
        assert 1 < max(abs(np.subtract(moved, plain)).ravel()) <= 8
        (x_by_y, x_by_x), (y_by_y, y_by_x) = (np.gradient(axis) for axis in moved)
        assert (x_by_x * y_by_y - x_by_y * y_by_x > 0).all()


@pytest.mark.parametrize(
    ("contrast", "hu", "expected"), [(1, 115, 115), (1.5, 115, 160), (2, 25, 25), (2, 200, 250)]
)
def test_contrast_is_about_the_middle_of_the_window_and_cut_off_at_its_ends(contrast, hu, expected):
    grey = (np.full((HEIGHT, WIDTH, 1), hu, np.float32) + 200) / 450  # window -200 to 250 HU
    [change] = drawn(1, contrast=(contrast, contrast))
    changed, _ = change_slice(grey, noise_mask(), change)
    np.testing.assert_allclose(changed * 450 - 200, expected, atol=1e-3)


def test_brightness_and_noise_are_in_hu():
    grey = np.full((HEIGHT, WIDTH, 3), 0.5, np.float32)
    for change in drawn(5, brightness=45, noise=20):
        hu = change_slice(grey, noise_mask(), change)[0] * 450 - 225
        assert hu.mean() == pytest.approx(change.offset * 450, abs=1)
        assert hu.std() == pytest.approx(change.noise * 450, rel=0.03)
        assert abs(np.corrcoef(hu[..., 0].ravel(), hu[..., 1].ravel())[0, 1]) < 0.05


def test_blur_spreads_a_point_by_its_standard_deviation():
    image = np.full((HEIGHT, WIDTH, 1), 0.2, np.float32)
    image[30, 40] = 1
    for change in drawn(3, blur=3, seed=2):
        changed, _ = change_slice(image, noise_mask(), change)
        profile = (changed[20:41, 30:51, 0] - 0.2).sum(axis=0) / 0.8
        assert profile.sum() == pytest.approx(1, abs=1e-3)
        spread = (np.arange(-10, 11) ** 2 * profile).sum()
        assert math.sqrt(spread) == pytest.approx(change.blur, abs=0.04)


def test_air_stays_air():
    image = noise_image()
    image[:, : WIDTH // 2] = 0
    for change in drawn(5, **GREY):
        changed, _ = change_slice(image, noise_mask(), change)
        assert not changed[:, : WIDTH // 2].any()
        assert changed[:, WIDTH // 2 :].any()


# In the generator


def sequence(cfg, workers: int = 1, seed: int = 0, **order) -> SliceSequence:
    pairs = list_split(cfg, "TRAIN")
    settings = {"batch_size": 7, "full_batches": True, "shuffle": True, "seed": seed} | order
    ranges = replace(NONE, **GEOMETRY, **GREY | {"contrast": (0.9, 1.1)}, **ELASTIC)
    return SliceSequence(
        pairs,
        SliceReader(SIZE, SIZE, 3, classes=2),
        EpochOrder(len(pairs), **settings),
        workers,
        Augmentation(ranges, SIZE, SIZE, seed),
    )


def arrays(dataset: SliceSequence, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    dataset.start_epoch(epoch)
    images, masks = zip(*dataset, strict=True)
    return np.concatenate(images), np.concatenate(masks)


def test_changes_are_a_function_of_seed_and_epoch(slices, make_cfg):
    cfg = make_cfg()
    straight = sequence(cfg, workers=1)
    epochs = [arrays(straight, epoch) for epoch in range(3)]
    resumed = arrays(sequence(cfg, workers=3), 2)
    for found, expected in zip(resumed, epochs[2], strict=True):
        np.testing.assert_array_equal(found, expected)
    other_seed = arrays(sequence(cfg, seed=1), 0)
    versions = [images for images, _ in (*epochs, other_seed)]
    for one, other in itertools.combinations(versions, 2):
        assert all((image != twin).any() for image, twin in itertools.product(one, other))


def test_a_slice_that_comes_twice_changes_twice(slices, make_cfg):
    images, _ = arrays(sequence(make_cfg(), steps_per_epoch=4), 0)
    assert len(np.unique(images, axis=0)) == len(images) == 28


def test_replicas_get_the_slices_that_one_would(slices, make_cfg):
    dataset = sequence(make_cfg())
    expected = [*arrays(dataset, 1), *arrays(dataset, 2)]
    dataset.start_epoch(1)
    batches = list(itertools.islice(iter(dataset.distribute(CPU)), 4))
    images, masks = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    np.testing.assert_array_equal(images, np.concatenate(expected[0::2]))
    np.testing.assert_array_equal(masks, np.concatenate(expected[1::2]))


def test_only_training_slices_change(slices, make_cfg):
    def first(mode, **changes):
        return get_data_generator(make_cfg(**changes), mode, CPU).dataset[0][0]

    enabled = {"AUGMENTATION": {"ENABLED": True}}
    assert (first("TRAIN") != first("TRAIN", **enabled)).any()
    np.testing.assert_array_equal(first("VAL"), first("VAL", **enabled))


def test_preview_shows_slices_with_foreground(slices, make_cfg, capsys):
    path = preview(make_cfg(AUGMENTATION={"ENABLED": True}))
    assert str(path) in capsys.readouterr().out.replace("\n", "")
    picture = cv2.imread(str(path))
    title, gap, enlarged = 22, 4, 256
    assert picture.shape == (
        SLICES * (enlarged + title),
        (EPOCHS + 1) * (enlarged + gap) - gap,
        3,
    )
    with pytest.raises(UserError, match="AUGMENTATION.ENABLED: found False"):
        preview(make_cfg())
    for mask in (slices / "data/train/mask").iterdir():
        cv2.imwrite(str(mask), np.zeros((SIZE, SIZE), np.uint8))
    with pytest.raises(UserError, match="no slice has foreground"):
        preview(make_cfg(AUGMENTATION={"ENABLED": True}))

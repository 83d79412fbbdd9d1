"""Random changes by DALI: the same as by OpenCV, noise apart."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from data_generators.augmentation import Augmentation
from data_generators.dali_data_generator import PathStream
from data_generators.data_generator import get_data_generator
from data_generators.epoch_order import EpochOrder
from data_generators.slice_reader import SliceReader
from data_generators.tf_data_generator import SliceSequence
from tests.test_augmentation import GEOMETRY, GREY, NONE
from tests.test_dali_generator import CPU, GPU, needs_dali, read_by_dali, waves, write_pair
from utils.slice_files import SlicePair

LENGTH = 64  # px


def read(folder, image, mask, channels: int = 3, count: int = 8, epoch: int = 0, **ranges):
    """One slice, changed `count` times: images and masks by DALI, and by OpenCV."""
    pairs = [write_pair(folder, "7_0", image, mask)] * count
    reader = SliceReader(*mask.shape, channels, classes=8)
    order = EpochOrder(count, count // 2, full_batches=True)
    augmentation = Augmentation(replace(NONE, **ranges), *mask.shape, seed=3)
    plain = SliceSequence(pairs, reader, order, augmentation=augmentation)
    plain.start_epoch(epoch)
    by_dali = read_by_dali(pairs, reader, order, 2, epoch, augmentation)
    return [
        [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]
        for batches in (by_dali, plain)
    ]


def test_changes_are_dealt_to_replicas_like_the_names():
    augmentation = Augmentation(replace(NONE, **GEOMETRY, **GREY), LENGTH, LENGTH, seed=3)
    pairs = [SlicePair(Path(f"image_{i}.png"), Path(f"mask_{i}.png")) for i in range(10)]
    order = EpochOrder(10, 8, full_batches=True, shuffle=True)  # one batch per epoch
    stream = PathStream(pairs, order, augmentation)
    stream.start_epoch(2)
    parts = list(itertools.islice(stream.changes(range(1, 3), replicas=4), 4))
    places = [(2, 2), (2, 3), (2, 4), (2, 5), (3, 2), (3, 3), (3, 4), (3, 5)]
    for numbers, place in zip(np.concatenate(parts), places, strict=True):
        drawn = augmentation.draw(*place)
        expected = [*drawn.matrix.ravel(), drawn.gain, drawn.offset, drawn.blur, drawn.noise]
        np.testing.assert_allclose(numbers, expected, rtol=1e-6, atol=1e-6)


def some_mask() -> np.ndarray:
    return np.random.default_rng(1).choice([0, 3, 7], (LENGTH, 80)).astype(np.uint8)


@needs_dali
@pytest.mark.parametrize("channels", [1, 3])
def test_no_range_changes_nothing(tmp_path, channels):
    image = np.random.default_rng(0).integers(0, 256, (LENGTH, 80, 3)).astype(np.uint8)
    (images, masks), (expected, expected_masks) = read(tmp_path, image, some_mask(), channels)
    np.testing.assert_array_equal(images, expected)
    np.testing.assert_array_equal(masks, expected_masks)
    np.testing.assert_array_equal(masks[0], some_mask())


@needs_dali
@pytest.mark.parametrize("ranges", [GEOMETRY | {"vertical_flip": 0.5}, GREY | {"noise": 0}])
@pytest.mark.parametrize("epoch", [0, 3])
def test_geometry_and_grey_values_are_those_of_opencv(tmp_path, ranges, epoch):
    image = np.pad(waves(LENGTH), [(0, 0), (0, 16), (0, 0)], mode="edge")
    found, expected = read(tmp_path, image, some_mask(), epoch=epoch, **ranges)
    assert [array.dtype for array in found] == [array.dtype for array in expected]
    # OpenCV 4 rounds positions to 1/32 px
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=0.02)
    assert np.mean(found[1] != expected[1]) < 0.005
    assert len(np.unique(found[0], axis=0)) == 8


@needs_dali
def test_a_marked_point_lands_at_the_same_place(tmp_path):
    mask = cv2.circle(np.zeros((LENGTH, 80), np.uint8), (30, 40), 4, 2, thickness=-1)
    found, expected = read(tmp_path, np.dstack([mask * 100] * 3), mask, **GEOMETRY)
    y, x = np.mgrid[:LENGTH, :80]
    for arrays in zip(found[0][..., 0], found[1], expected[1], strict=True):
        by_dali, in_mask, by_opencv = (
            [np.average(axis, weights=array) for axis in (x, y)] for array in arrays
        )
        assert math.dist(by_dali, in_mask) < 0.5
        assert math.dist(in_mask, by_opencv) < 0.5
    assert set(np.unique(found[1])) == {0, 2}


@needs_dali
def test_noise_has_the_same_strength_and_air_stays_air(tmp_path):
    image = np.full((LENGTH, 80, 3), 128, np.uint8)
    image[:, :10] = 0
    (images, _), (expected, _) = read(tmp_path, image, some_mask(), noise=45)
    assert not images[:, :, :10].any()
    inside = np.s_[:, :, 10:]
    deviation = images[inside].std(axis=(1, 2, 3))
    np.testing.assert_allclose(deviation, expected[inside].std(axis=(1, 2, 3)), rtol=0.05)
    np.testing.assert_allclose(images[inside].mean(axis=(1, 2, 3)), 128 / 255, atol=0.005)
    channels = images[0, :, 10:].reshape(-1, 3).T
    assert abs(np.corrcoef(channels) - np.eye(3)).max() < 0.1


@needs_dali
def test_the_adapter_changes_training_slices(slices, make_cfg):
    keys = {"ENABLED": True, "NOISE": 0}
    dali, plain = (
        get_data_generator(make_cfg(AUGMENTATION=keys, DATA_GENERATOR_TYPE=name), "TRAIN", CPU)
        for name in ("DALI_GENERATOR", "TF_GENERATOR")
    )
    for split in (dali, plain):
        split.start_epoch(5)
    expected = plain.dataset[0][1]
    assert np.mean(next(iter(dali.dataset))[1] != expected) < 0.005
    assert (plain.dataset[0][1] != get_data_generator(make_cfg(), "TRAIN", CPU).dataset[0][1]).any()


def test_auto_leaves_displacements_to_the_tf_generator(slices, make_cfg):
    cfg = make_cfg(AUGMENTATION={"ENABLED": True, "ELASTIC": {"AMPLITUDE": 5}})
    assert get_data_generator(cfg, "TRAIN", GPU).generator == "TF_GENERATOR"

"""Whatever a file holds and is called: it comes back as it was, or is refused by name."""

from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from data_generators.epoch_order import EpochOrder
from data_generators.slice_reader import SliceReader
from data_preparation.native_grid import unfit_masks
from data_preparation.prepare_case import SliceFolders, slice_files
from data_preparation.scans import read_scan, restore_orientation
from data_preparation.slices import SliceSettings, fit_mask, grey_slice
from tests.scan_files import ALL_AXIS_CODES, write_scan
from utils.errors import UserError
from utils.images import case_and_slice, read_image, read_mask, to_class_ids
from utils.paths import natural_key, read_json, resolve_path, write_json
from utils.slice_files import SlicePair, list_slice_pairs
from utils.slice_index import mask_facts

settings.register_profile(
    "deterministic",
    derandomize=True,
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("deterministic")

NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda name: not name.startswith(".") and len(name.encode()) < 120)
SIDES = st.integers(1, 20)
PIXELS = st.one_of(
    arrays.arrays(dtype, arrays.array_shapes(min_dims=2, max_dims=2, max_side=20))
    for dtype in (np.uint8, np.uint16)
)
COLOURS = st.tuples(SIDES, SIDES, st.sampled_from([3, 4])).flatmap(
    lambda shape: arrays.arrays(np.uint8, shape)
)
LABELS = arrays.arrays(
    np.uint8, arrays.array_shapes(min_dims=3, max_dims=3, max_side=9), elements=st.integers(0, 2)
)
ENDINGS = st.sampled_from([".png", ".PNG", ".tif", ".TIFF"])


def write(path: Path, array: np.ndarray) -> Path:
    """Channels as R, G, B (and alpha)."""
    codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    stored = cv2.cvtColor(array, codes[array.shape[2]]) if array.ndim == 3 else array
    path.write_bytes(cv2.imencode(path.suffix.lower(), stored)[1].tobytes())
    return path


@given(PIXELS, NAMES, ENDINGS)
def test_masks_keep_every_value(tmp_path, pixels, name, ending):
    path = write(tmp_path / f"{name}{ending}", pixels)
    mask = read_mask(path)
    np.testing.assert_array_equal(mask, pixels)
    assert mask.dtype == pixels.dtype
    (facts,) = mask_facts([path])
    counts = Counter(pixels.ravel().tolist())
    assert dict(zip(facts.values, facts.pixels, strict=True)) == counts
    assert (facts.height, facts.width) == pixels.shape


@given(st.one_of(PIXELS, COLOURS), st.sampled_from([1, 3, 4]), NAMES, ENDINGS)
def test_images_keep_every_value_or_are_refused(tmp_path, pixels, channels, name, ending):
    path = write(tmp_path / f"{name}{ending}", pixels)
    stored = 1 if pixels.ndim == 2 else pixels.shape[2]
    try:
        image = read_image(path, channels)
    except UserError as error:
        assert str(path) in str(error)
        assert pixels.dtype != np.uint8 or (channels == 4) != (stored == 4)
        return
    assert image.shape == (*pixels.shape[:2], channels)
    if stored >= channels > 1:
        np.testing.assert_array_equal(image, pixels[..., :channels])
    if stored == 1:
        np.testing.assert_array_equal(image, pixels[..., None].repeat(channels, axis=2))


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"BM", b"II*\0", b"GIF89a"]),
)
def test_any_bytes_are_refused_by_name(tmp_path, content, start):
    path = tmp_path / "a.png"
    path.write_bytes(start + content)
    for read in (read_mask, lambda path: read_image(path, 3)):
        with pytest.raises(UserError, match="a.png: cannot be"):
            read(path)


@given(PIXELS, st.integers(1, 6), st.sampled_from([None, 1, 2, 127, 255, 65535]))
def test_class_ids_are_quotients_below_the_class_count(pixels, classes, divisor):
    quotients = pixels // np.uint16(divisor or 1)
    fits = (quotients * (divisor or 1) == pixels).all() and (quotients < max(classes, 2)).all()
    try:
        ids = to_class_ids(pixels, classes, divisor, Path("m.png"))
    except UserError as error:
        assert str(error).startswith("m.png: ")
        assert not fits
        return
    assert fits
    np.testing.assert_array_equal(ids, quotients)


@given(NAMES, st.integers(0, 10**6))
def test_case_and_slice_come_back_from_the_names_of_files(case, index):
    image, mask = slice_files(SliceFolders(Path("i"), Path("m")), case, index)
    assert case_and_slice(image) == (case, index)
    assert case_and_slice(mask)[1] == index


@given(st.lists(NAMES, min_size=1, max_size=5, unique=True))
def test_images_find_their_own_masks_whatever_the_cases_are_called(tmp_path_factory, cases):
    folder = tmp_path_factory.mktemp("slices")
    folders = SliceFolders(folder / "i", folder / "m")
    expected = [SlicePair(*slice_files(folders, case, 0)) for case in cases]
    assume(len({pair.mask for pair in expected}) == len(cases))
    for pair in expected:
        for path in pair:
            path.parent.mkdir(exist_ok=True)
            path.touch()
    found = list_slice_pairs("i", "m", folder, "KEY")
    assert found == sorted(expected, key=lambda pair: natural_key(pair.image.name))


@given(LABELS, st.sampled_from(ALL_AXIS_CODES), st.sampled_from([".nii", ".nii.gz"]), NAMES)
def test_labels_go_to_slices_and_back_to_the_grid_of_the_scan(tmp_path, view, codes, ending, name):
    path = write_scan(tmp_path / f"{name}{ending}", view, codes)
    scan = read_scan(path)
    _, rows, columns = scan.stored.shape
    for fit, extra in (("resize", 0), ("crop", 3)):
        size = SliceSettings(rows + extra, columns + extra, -200, 250, fit)
        slices = [
            read_mask(write(tmp_path / "slice.png", fit_mask(scan.labels(index), size)))
            for index in range(len(scan))
        ]
        back = restore_orientation(unfit_masks(np.stack(slices), rows, columns, fit), codes)
        np.testing.assert_array_equal(back, restore_orientation(view, codes))


@given(
    arrays.arrays(np.int16, arrays.array_shapes(min_dims=2, max_dims=2, max_side=12)), SIDES, SIDES
)
def test_grey_values_are_those_of_the_window(hu, height, width):
    grey = grey_slice(hu, SliceSettings(height, width, -200, 250, "resize"))
    assert grey.shape == (height, width)
    assert grey.dtype == np.uint8
    window = np.rint((np.clip(hu, -200.0, 250.0) + 200) / 450 * 255)
    assert window.min() <= grey.min()
    assert grey.max() <= window.max()
    if hu.shape == grey.shape:
        np.testing.assert_allclose(grey, window, atol=1)


@given(PIXELS.filter(lambda pixels: pixels.dtype == np.uint8), SIDES, SIDES)
def test_slices_of_any_size_are_brought_to_the_networks_or_refused(tmp_path, pixels, height, width):
    labels = pixels % 3
    pair = SlicePair(write(tmp_path / "i.png", pixels), write(tmp_path / "m.png", labels))
    image, mask = SliceReader(height, width, 3, classes=3, resize=True).read(pair)
    assert image.shape == (height, width, 3)
    assert mask.shape == (height, width)
    assert 0 <= image.min() <= image.max() <= 1
    assert set(np.unique(mask)) <= set(np.unique(labels))
    if pixels.shape != (height, width):
        with pytest.raises(UserError, match="i.png: found"):
            SliceReader(height, width, 3, classes=3).read(pair)


@given(
    count=st.integers(1, 40),
    replicas=st.integers(1, 3),
    share=st.integers(1, 5),
    epoch=st.integers(0, 5),
    seed=st.integers(0, 3),
)
def test_every_slice_comes_once_per_epoch_over_all_replicas(count, replicas, share, epoch, seed):
    order = EpochOrder(count, replicas * share, shuffle=True, seed=seed)
    assert sorted(order.positions(epoch)) == list(range(count))
    parts = order.shares(range(replicas), replicas, epoch)
    seen = np.concatenate([next(parts).slices for _ in range(order.steps * replicas)])
    np.testing.assert_array_equal(seen[seen >= 0], order.positions(epoch))
    full = EpochOrder(count, replicas * share, full_batches=True, shuffle=True, seed=seed)
    if full.steps:  # fewer slices than a batch are refused before
        assert len(set(full.positions(epoch))) == full.steps * replicas * share


@given(NAMES, st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_json_and_paths_come_back(tmp_path, name, content):
    path = resolve_path(name, tmp_path)
    assert resolve_path(path, tmp_path) == path
    assume(path.parent == tmp_path)
    write_json(path, content)
    assert read_json(path, "content") == content

"""Reading slices and masks of every bit depth and colour type, and naming them."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from utils.errors import UserError
from utils.images import (
    case_and_slice,
    encode_png,
    image_to_mask_name,
    read_image,
    read_mask,
    resize_image,
    resize_mask,
    to_class_ids,
)

IDS = np.uint8([[0, 1, 2], [2, 1, 0]])


def palette_png(path: Path) -> None:
    image = Image.fromarray(IDS, mode="P")
    image.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0])
    image.save(path)


def two_bit_palette_png(path: Path) -> None:
    image = Image.fromarray(IDS, mode="P")
    image.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0, 9, 9, 9])
    image.save(path, bits=2)


MASK_FILES = {
    "grey_8": lambda path: path.write_bytes(encode_png(IDS)),
    "grey_16": lambda path: cv2.imwrite(str(path), IDS.astype(np.uint16)),
    "three_equal_channels": lambda path: cv2.imwrite(str(path), np.dstack([IDS] * 3)),
    "palette": palette_png,
    "palette_2_bits": two_bit_palette_png,
}


@pytest.mark.parametrize("kind", MASK_FILES)
def test_masks_keep_their_ids_whatever_the_file_stores(tmp_path, kind):
    path = tmp_path / "mask.png"
    MASK_FILES[kind](path)
    np.testing.assert_array_equal(read_mask(path), IDS)


def test_one_bit_mask_is_0_and_1(tmp_path):
    path = tmp_path / "mask.png"
    Image.fromarray(IDS > 0).convert("1").save(path)
    np.testing.assert_array_equal(read_mask(path), IDS > 0)


def test_colour_masks_are_refused(tmp_path):
    path = tmp_path / "mask.png"
    path.write_bytes(encode_png(np.dstack([IDS * 100, IDS, IDS])))
    with pytest.raises(UserError, match="mask.png: found a colour image"):
        read_mask(path)


@pytest.mark.parametrize("read", [read_mask, lambda path: read_image(path, 3)])
@pytest.mark.parametrize("content", [b"", b"no image", None, "truncated"])
def test_damaged_and_missing_files_are_named(tmp_path, read, content):
    path = tmp_path / "file.png"
    if content == "truncated":
        content = encode_png(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8))[:60]
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match="file.png: cannot be"):
        read(path)


def test_colour_images_are_rgb_and_grey_ones_repeat(tmp_path):
    path = tmp_path / "image.png"
    rgb = np.uint8([[[1, 2, 3], [250, 0, 9]]])
    path.write_bytes(encode_png(rgb))
    np.testing.assert_array_equal(read_image(path, 3), rgb)
    path.write_bytes(encode_png(rgb[..., 0]))
    np.testing.assert_array_equal(read_image(path, 3), rgb[..., :1].repeat(3, axis=2))
    np.testing.assert_array_equal(read_image(path, 1), rgb[..., :1])


def test_images_of_16_bits_or_other_channels_are_refused(tmp_path):
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), np.full((2, 2, 3), 300, np.uint16))
    with pytest.raises(UserError, match="found uint16 pixels; expected an image of 8 bits"):
        read_image(path, 3)
    path.write_bytes(encode_png(np.zeros((2, 2, 3), np.uint8)))
    with pytest.raises(UserError, match="found 3 channels; expected INPUT.CHANNELS=4"):
        read_image(path, 4)


@pytest.mark.parametrize(
    ("values", "classes", "divisor", "expected"),
    [
        ([0, 1], 1, None, [0, 1]),
        ([0, 255], 1, 255, [0, 1]),
        ([0, 1, 2], 3, None, [0, 1, 2]),
        ([0, 127, 254], 3, 127, [0, 1, 2]),
    ],
)
def test_class_ids(values, classes, divisor, expected):
    ids = to_class_ids(np.uint8([values]), classes, divisor, Path("m.png"))
    np.testing.assert_array_equal(ids, [expected])
    assert ids.dtype == np.uint8


@pytest.mark.parametrize(
    ("values", "classes", "divisor", "message"),
    [
        ([0, 255], 2, None, "m.png: found class ids 255; .*NORMALIZE_MASK.VALUE=True"),
        ([0, 2], 1, None, "OUTPUT.CLASSES=1 takes 0 to 1"),
        ([0, 3, 4], 3, None, "found class ids 3, 4"),
        ([0, 128], 2, 255, "found values 128; .*NORMALIZE_VALUE=255"),
    ],
)
def test_values_that_are_no_class(values, classes, divisor, message):
    with pytest.raises(UserError, match=message):
        to_class_ids(np.uint8([values]), classes, divisor, Path("m.png"))


@pytest.mark.parametrize(("height", "width"), [(5, 5), (3, 20), (16, 16), (7, 9)])
def test_resizing_masks_invents_no_label(height, width):
    mask = np.random.default_rng(0).choice(np.uint8([0, 2, 5]), (8, 10))
    resized = resize_mask(mask, height, width)
    assert resized.shape == (height, width)
    assert set(np.unique(resized)) <= {0, 2, 5}


@pytest.mark.parametrize(("factor", "shape"), [(2, (8, 16)), (0.5, (2, 4)), (3, (12, 24))])
def test_image_and_mask_stay_aligned_when_resized(factor, shape):
    mask = np.zeros((4, 8), np.uint8)
    mask[:, :4] = 1
    resized = resize_mask(mask, *shape)
    assert resized.sum() * 2 == resized.size
    soft = resize_image(mask.astype(np.float32), *shape)
    np.testing.assert_allclose(soft.mean(), 0.5, atol=1e-6)
    assert ((soft > 0.5) == (resized == 1)).mean() >= 1 - 1 / shape[1]


def test_shrinking_averages_instead_of_skipping():
    checkerboard = np.indices((64, 64)).sum(axis=0) % 2 * np.float32(1)
    np.testing.assert_allclose(resize_image(checkerboard, 32, 32), 0.5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("image_0_12.png", ("0", 12)),
        ("mask_a_b_3.png", ("a_b", 3)),
        ("photo.png", ("photo", 0)),
        ("image_5.png", ("image_5", 0)),
    ],
)
def test_case_and_slice(name, expected):
    assert case_and_slice(Path("x") / name) == expected


def test_mask_name():
    assert image_to_mask_name("image_3_4.png") == "mask_3_4.png"

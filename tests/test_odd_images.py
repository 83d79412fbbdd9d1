"""Image files of every kind: the pixels as stored, or a refusal that names the file."""

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from utils.errors import UserError
from utils.images import read_image, read_mask

RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 3, (8, 8)).astype(np.uint8)
RGB = RNG.integers(0, 256, (8, 8, 3)).astype(np.uint8)
UPSIDE_DOWN = Image.Exif()
UPSIDE_DOWN[0x112] = 3


def palette() -> Image.Image:
    image = Image.fromarray(IDS, mode="P")
    image.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0])
    return image


def save(image: Image.Image, path: Path, **options) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("ending", ["png", "tif", "bmp"])
@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(IDS), IDS),
        (palette(), IDS),
        (Image.fromarray(IDS > 0), IDS > 0),
        (Image.fromarray(np.dstack([IDS] * 3)), IDS),
    ],
    ids=["grey", "palette", "1 bit", "grey in RGB"],
)
def test_masks_are_what_lossless_files_store(tmp_path, ending, image, expected):
    path = save(image, tmp_path / f"mask.{ending}")
    np.testing.assert_array_equal(read_mask(path), expected)


def test_masks_compressed_with_loss_are_refused(tmp_path):
    path = save(Image.fromarray(IDS), tmp_path / "mask.png", format="JPEG")
    with pytest.raises(UserError, match="mask.png: found a JPEG, whose compression changes"):
        read_mask(path)


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_image_and_mask_lie_as_stored_whatever_exif_says(tmp_path, ending):
    image = Image.fromarray(np.repeat(np.repeat(RGB[:2, :2], 8, axis=0), 8, axis=1))
    plain = save(image, tmp_path / f"plain.{ending}")
    turned = save(image, tmp_path / f"turned.{ending}", exif=UPSIDE_DOWN)
    np.testing.assert_array_equal(read_image(turned, 3), read_image(plain, 3))
    np.testing.assert_array_equal(read_image(turned, 1), read_image(plain, 1))
    if ending != "jpg":
        mask = save(Image.fromarray(IDS), tmp_path / f"mask.{ending}", exif=UPSIDE_DOWN)
        np.testing.assert_array_equal(read_mask(mask), IDS)


def test_tiff_that_is_to_be_turned_is_refused(tmp_path):
    path = save(Image.fromarray(IDS), tmp_path / "a.tif", exif=UPSIDE_DOWN)
    for read in (read_mask, lambda path: read_image(path, 3)):
        with pytest.raises(UserError, match="a.tif: found an orientation of 3; save it upright"):
            read(path)


def test_four_channels_are_red_green_blue_and_alpha(tmp_path):
    rgba = np.dstack([RGB, IDS])
    path = save(Image.fromarray(rgba), tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(path, 4), rgba)
    np.testing.assert_array_equal(read_image(path, 3), RGB)


def test_interlaced_and_transparent_pngs_keep_their_pixels(tmp_path):
    # Adam7, 1 x 1 px: one pass with one pixel; larger ones cannot be written with Pillow
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 1)
    (tmp_path / "a.png").write_bytes(png(header, zlib.compress(b"\0\2")))
    assert read_mask(tmp_path / "a.png").tolist() == [[2]]
    path = save(Image.fromarray(IDS), tmp_path / "b.png", transparency=1)
    np.testing.assert_array_equal(read_mask(path), IDS)
    np.testing.assert_array_equal(read_image(path, 1)[..., 0], IDS)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_several_pages_are_refused(tmp_path, name):
    frames = {"save_all": True, "append_images": [Image.fromarray(2 - IDS)]}
    path = save(Image.fromarray(IDS), tmp_path / name, **frames)
    for read in (read_mask, lambda path: read_image(path, 3)):
        with pytest.raises(UserError, match=f"{name}: found 2 pages or frames"):
            read(path)


def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def png(header: bytes, data: bytes) -> bytes:
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize("colour_type", [0, 3])
def test_files_that_claim_a_giant_size_are_refused(tmp_path, colour_type):
    path = tmp_path / "bomb.png"
    header = struct.pack(">IIBBBBB", 60000, 60000, 8, colour_type, 0, 0, 0)
    path.write_bytes(png(header, zlib.compress(bytes(60001))))
    for read in (read_mask, lambda path: read_image(path, 3)):
        with pytest.raises(UserError, match="bomb.png: cannot be decoded"):
            read(path)


@pytest.mark.parametrize("image", [Image.fromarray(RGB), palette(), Image.fromarray(IDS)])
@pytest.mark.parametrize("read", [read_mask, lambda path: read_image(path, 3)])
def test_every_single_damaged_byte_of_a_png_is_harmless_or_found(tmp_path, image, read):
    """The checksums of PNG find any wrong byte that reaches the pixels."""
    if read is read_mask and image.mode == "RGB":
        image = image.convert("L")
    buffer = BytesIO()
    image.save(buffer, "PNG")
    content, path = buffer.getvalue(), tmp_path / "a.png"
    path.write_bytes(content)
    expected = read(path)
    for position in range(len(content)):
        changed = bytes([content[position] ^ 0x11])
        path.write_bytes(content[:position] + changed + content[position + 1 :])
        try:
            found = read(path)
        except UserError as error:
            assert str(path) in str(error)
        else:
            np.testing.assert_array_equal(found, expected)


def test_folders_named_like_images_are_refused_by_name(tmp_path):
    (tmp_path / "a.png").mkdir()
    with pytest.raises(UserError, match="a.png: cannot be read"):
        read_image(tmp_path / "a.png", 3)

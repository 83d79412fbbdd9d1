"""Naming, reading, resizing and encoding slices and masks."""

import re
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from utils.errors import UserError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
_SLICE_NAME = re.compile(r"(?:image|mask)_(?P<case>.+)_(?P<slice>\d+)", flags=re.DOTALL)
_TIFF_ORIENTATION = 274  # number of the tag
# Differences of neighbours, cv2's default, save a tenth of the bytes of slices and none of masks;
# but slices then take a fifth longer to read, masks five times. cv2 below 4.12 leaves no choice.
_PNG_UNFILTERED = (
    [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE]
    if hasattr(cv2, "IMWRITE_PNG_FILTER")
    else []
)
_PNG_BIT_DEPTH = 24  # the position of this byte in a PNG file


def image_to_mask_name(name: str) -> str:
    """The file name of the mask that belongs to an image: "image" becomes "mask"."""
    return name.replace("image", "mask")


def case_and_slice(path: Path) -> tuple[str, int]:
    """Case id and slice number from `image_<case>_<slice>`; any other name is a case of its own."""
    match = _SLICE_NAME.fullmatch(path.stem)
    return (match["case"], int(match["slice"])) if match else (path.stem, 0)


def read_image(path: Path, channels: int) -> np.ndarray:
    """A slice image, uint8 of shape (height, width, channels), channels in R, G, B order.

    A grey image is repeated into 3 channels, a colour image is reduced to 1 by luminance. Pixels
    lie as the file stores them, like those of its mask: an EXIF orientation is not applied.

    Raises:
        UserError: the file is missing, damaged, not 8 bits deep, or has other channels or pages.
    """
    content = _read_file(path)
    _header(path, content)
    flags = {1: cv2.IMREAD_GRAYSCALE, 3: cv2.IMREAD_COLOR}.get(channels, cv2.IMREAD_UNCHANGED)
    image = _decode(path, content, flags | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION)
    if image.dtype != np.uint8:
        raise UserError(f"{path}: found {image.dtype} pixels; expected an image of 8 bits")
    image = image.reshape(*image.shape[:2], -1)
    if image.shape[2] != channels:
        raise UserError(
            f"{path}: found {image.shape[2]} channels; expected INPUT.CHANNELS={channels}"
        )
    to_rgb = {3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGBA}.get(channels)
    return image if to_rgb is None else cv2.cvtColor(image, to_rgb)


def read_mask(path: Path) -> np.ndarray:
    """The class ids of a mask file, uint8 or uint16 of shape (height, width).

    Ids are what the file stores: palette indices are not turned into colours, and files of less
    than 8 bits are not stretched to 0…255.

    Raises:
        UserError: the file is missing, damaged, a JPEG, or has several pages or colour channels
            that differ.
    """
    content = _read_file(path)
    header = _header(path, content)
    if header.format == "JPEG":
        raise UserError(f"{path}: found a JPEG, whose compression changes class ids; use PNG")
    bits = content[_PNG_BIT_DEPTH] if header.format == "PNG" else 8
    if header.mode in ("P", "1") or bits < 8:
        return _decode_packed_mask(path, content, bits)
    mask = _decode(path, content, cv2.IMREAD_UNCHANGED)
    if mask.ndim == 3:
        colours = mask[..., :3]
        if (colours != colours[..., :1]).any():
            raise UserError(f"{path}: found a colour image; expected a mask of class ids in grey")
        mask = colours[..., 0]
    if mask.dtype not in (np.uint8, np.uint16):
        raise UserError(f"{path}: found {mask.dtype} pixels; expected a mask of 8 or 16 bits")
    return mask


def to_class_ids(
    mask: np.ndarray, classes: int, normalize_value: int | None, path: Path
) -> np.ndarray:
    """The class ids of a mask as the network's target counts them, uint8, shape of `mask`.

    Args:
        mask: what `read_mask` returns.
        classes: `OUTPUT.CLASSES`; ids go from 0 to `classes` - 1, to 1 for a single class.
        normalize_value: divides every value first, and must do so without a remainder; None where
            masks store ids already.
        path: the mask's file, for the message.

    Raises:
        UserError: a value is not a multiple of `normalize_value`, or not an id of a class.
    """
    if normalize_value is not None:
        values, (mask, remainders) = mask, np.divmod(mask, np.uint16(normalize_value))
        if remainders.any():
            raise UserError(
                f"{path}: found values {_some_values(values[remainders > 0])}; PREPROCESS_DATA."
                f"NORMALIZE_MASK.NORMALIZE_VALUE={normalize_value} does not divide them"
            )
    count = max(classes, 2)
    if mask.max(initial=0) >= count:
        hint = ""
        if normalize_value is None and (mask == 255).any():
            hint = "; PREPROCESS_DATA.NORMALIZE_MASK.VALUE=True divides masks of 0 and 255 by 255"
        raise UserError(
            f"{path}: found class ids {_some_values(mask[mask >= count])}; "
            f"OUTPUT.CLASSES={classes} takes 0 to {count - 1}{hint}"
        )
    return mask.astype(np.uint8)


def _some_values(values: np.ndarray, shown: int = 5) -> str:
    different = np.unique(values)
    more = ", …" if different.size > shown else ""
    return ", ".join(str(value) for value in different[:shown]) + more


def _header(path: Path, content: bytes) -> Image.Image:
    """What a file says of itself, without decoding it."""
    try:
        with Image.open(BytesIO(content)) as image:
            pages = getattr(image, "n_frames", 1)
            # cv2 turns TIFF even when told not to
            tags = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}
            orientation = tags.get(_TIFF_ORIENTATION, 1)
    except Exception as error:  # the reader of each format fails in ways of its own
        raise _undecodable(path, error) from None
    if pages > 1:
        raise UserError(f"{path}: found {pages} pages or frames; expected a file of one slice")
    if orientation != 1:
        raise UserError(f"{path}: found an orientation of {orientation}; save it upright")
    return image


def _decode_packed_mask(path: Path, content: bytes, bits: int) -> np.ndarray:
    try:
        with Image.open(BytesIO(content)) as image:
            ids = np.array(image)
            is_palette = image.mode == "P"
    except Exception as error:  # the reader of each format fails in ways of its own
        raise _undecodable(path, error) from None
    if not is_palette and ids.dtype != bool:
        ids //= 255 // (2**bits - 1)  # undo the stretch to 0…255
    return ids.astype(np.uint8)


def _undecodable(path: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Image.UnidentifiedImageError):
        reason = "the file is damaged or not an image"
    return UserError(f"{path}: cannot be decoded ({reason})")


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def _decode(path: Path, content: bytes, flags: int) -> np.ndarray:
    try:
        image = cv2.imdecode(np.frombuffer(content, np.uint8), flags)
    except cv2.error as error:
        raise _undecodable(path, error) from None
    if image is None:
        raise UserError(f"{path}: cannot be decoded (the file is damaged or not an image)")
    return image


def resize_image(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """`image` (any dtype of cv2, any channels) at `height` x `width` px.

    Shrinking averages areas, so that no structure is skipped; enlarging is bilinear.
    """
    if image.shape[:2] == (height, width):
        return image
    is_smaller = height * width < image.shape[0] * image.shape[1]
    interpolation = cv2.INTER_AREA if is_smaller else cv2.INTER_LINEAR
    resized = cv2.resize(image, (width, height), interpolation=interpolation)
    return resized.reshape(height, width, *image.shape[2:])


def resize_mask(mask: np.ndarray, height: int, width: int) -> np.ndarray:
    """`mask` at `height` x `width` px by nearest neighbour, its grid aligned with the image's."""
    if mask.shape == (height, width):
        return mask
    return cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST_EXACT)


def encode_png(image: np.ndarray) -> bytes:
    """A PNG file of `image`, uint8 of shape (height, width), or with a third axis R, G, B."""
    grey = image.ndim == 2
    pixels = image if grey else image[..., ::-1]
    # Masks are read thrice as fast when zlib may look for more than runs; slices are noise
    strategy = cv2.IMWRITE_PNG_STRATEGY_DEFAULT if grey else cv2.IMWRITE_PNG_STRATEGY_RLE
    options = [cv2.IMWRITE_PNG_STRATEGY, strategy, *_PNG_UNFILTERED]
    return cv2.imencode(".png", pixels, options)[1].tobytes()

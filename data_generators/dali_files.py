"""Which files NVIDIA DALI decodes to the very values that `SliceReader` reads."""

import struct
from collections.abc import Sequence
from pathlib import Path

from data_generators.slice_reader import SliceReader
from utils.errors import UserError
from utils.slice_files import SlicePair

# Signature, length and name of the first chunk; width, height, bit depth, colour type
_PNG_START = struct.Struct(">8s4x4sIIBB")
_SIGNATURE = (b"\x89PNG\r\n\x1a\n", b"IHDR")
_GREY, _RGB = 0, 2


def check_dali_files(pairs: Sequence[SlicePair], reader: SliceReader) -> None:
    """Read the first bytes of every file: PNG of 8 bits, images in grey or RGB, masks in grey.

    DALI would turn the palette indices of other masks into colours, stretch or cut their bits, and
    not notice colours; other image formats depend on the decoder. Class ids are not looked at:
    `verify_data`, which training runs first, refuses those that do not fit.

    Raises:
        UserError: lists files of other kinds, and of other sizes unless the reader resizes.
    """
    if reader.channels not in (1, 3):
        raise UserError(
            f"INPUT.CHANNELS: found {reader.channels}; DALI_GENERATOR reads images of 1 or 3 "
            "channels; DATA_GENERATOR_TYPE=TF_GENERATOR reads others"
        )
    problems = []
    for pair in pairs:
        if pair.mask is None:
            problems.append(f"{pair.image}: has no mask")
            continue
        problems += _problems(pair.image, (_GREY, _RGB), "an 8-bit PNG in grey or RGB", reader)
        problems += _problems(pair.mask, (_GREY,), "an 8-bit grey PNG", reader)
    if problems:
        raise UserError.listing(
            "DATA_GENERATOR_TYPE: DALI_GENERATOR cannot read these files, TF_GENERATOR reads any "
            "format and PREPROCESS_DATA.RESIZE.VALUE=True any size",
            problems,
        )


def _problems(path: Path, colour_types: tuple, wanted: str, reader: SliceReader) -> list[str]:
    try:
        with path.open("rb") as file:
            start = file.read(_PNG_START.size)
    except OSError as error:
        return [f"{path}: cannot be read ({error.strerror})"]
    if len(start) < _PNG_START.size:
        return [f"{path}: found no PNG; expected {wanted}"]
    *signature, width, height, bits, colour_type = _PNG_START.unpack(start)
    if tuple(signature) != _SIGNATURE:
        return [f"{path}: found no PNG; expected {wanted}"]
    if bits != 8 or colour_type not in colour_types:
        return [f"{path}: found a PNG of {bits} bits, colour type {colour_type}; expected {wanted}"]
    if not reader.resize and (height, width) != (reader.height, reader.width):
        return [
            f"{path}: found {height} x {width} px; expected INPUT.HEIGHT={reader.height} x "
            f"INPUT.WIDTH={reader.width}"
        ]
    return []

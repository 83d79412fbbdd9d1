"""Pictures for people: classes tinted over a slice, and panels side by side."""

import sys

import cv2
import numpy as np
from PIL import Image

# Colours (RGB) of class 1, 2, …, repeated beyond the last
CLASS_COLOURS = ((230, 70, 60), (250, 200, 50), (70, 160, 240), (90, 200, 110), (190, 110, 220))
_TITLE_HEIGHT, _GAP, _READABLE_WIDTH = 22, 4, 256  # px


def overlay(image: np.ndarray, mask: np.ndarray, opacity: float = 0.45) -> np.ndarray:
    """`image` (height, width, 3) uint8 with every class of `mask` tinted in its colour."""
    picture = image.astype(np.float32)
    for class_id in range(1, int(mask.max(initial=0)) + 1):
        colour = np.asarray(CLASS_COLOURS[(class_id - 1) % len(CLASS_COLOURS)], np.float32)
        inside = mask == class_id
        picture[inside] = (1 - opacity) * picture[inside] + opacity * colour
    return picture.round().astype(np.uint8)


def to_rgb(image: np.ndarray, center_channel: bool) -> np.ndarray:
    """A slice (height, width, channels) uint8 as RGB: its middle channel, or its first three."""
    if center_channel or image.shape[2] < 3:
        return np.repeat(image[..., image.shape[2] // 2, None], 3, axis=2)
    return image[..., :3]


def panel(pictures: dict[str, np.ndarray]) -> np.ndarray:
    """Pictures of one size, (height, width, 3) uint8, side by side under their titles.

    Small pictures are enlarged by a whole factor, to at least 256 px in width if possible.
    """
    titled = []
    for title, picture in pictures.items():
        factor = max(1, _READABLE_WIDTH // picture.shape[1])
        picture = picture.repeat(factor, axis=0).repeat(factor, axis=1)
        bar = np.zeros((_TITLE_HEIGHT, picture.shape[1], 3), np.uint8)
        cv2.putText(bar, title, (3, 15), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1)
        titled += [
            np.vstack([bar, picture]),
            np.zeros((len(bar) + len(picture), _GAP, 3), np.uint8),
        ]
    return np.hstack(titled[:-1])


def contact_sheet(pictures: list[np.ndarray], columns: int = 4) -> np.ndarray:
    """Pictures of one size, (height, width, 3) uint8, in rows of `columns`, black where none is."""
    blank = np.zeros_like(pictures[0])
    padded = pictures + [blank] * (-len(pictures) % columns)
    rows = [np.hstack(padded[start : start + columns]) for start in range(0, len(padded), columns)]
    return np.vstack(rows)


def show(picture: np.ndarray) -> None:
    """Display an RGB picture: in the notebook where there is one, otherwise in a window."""
    image = Image.fromarray(picture)
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython():
        sys.modules["IPython"].display.display(image)
    else:
        image.show()

"""Pictures that compare two masks over the slice they belong to."""

import cv2
import numpy as np

# RGB; blue and orange stay apart for colour-blind readers. The prediction's thin line is drawn over
# the truth's thick one, so that both show where they agree.
_LINES = {"truth": ((86, 180, 233), 6), "prediction": ((255, 150, 20), 2)}
_TEXT_COLOUR = (235, 235, 235)
_LEGEND_HEIGHT = 40  # px


def contour_picture(
    image: np.ndarray, truth: np.ndarray, prediction: np.ndarray, size: int = 768
) -> np.ndarray:
    """A grey slice with the outlines of two masks and a legend.

    Args:
        image: grey values, uint8 of shape (height, width).
        truth, prediction: labels of the same shape. Every label from 1 up is outlined together with
            the higher ones: the liver with its tumours, then the tumours.
        size: the slice is enlarged by a whole factor to about this many px on its longer side.

    Returns:
        RGB, uint8 of shape (height, width, 3), enlarged; the legend is a strip below the slice.
    """
    factor = max(1, round(size / max(image.shape)))
    height, width = (side * factor for side in image.shape)
    enlarged = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    picture = np.ascontiguousarray(np.repeat(enlarged[..., None], 3, axis=2))
    for mask, (colour, thickness) in zip((truth, prediction), _LINES.values(), strict=True):
        large = np.kron(mask.astype(np.uint8), np.ones((factor, factor), np.uint8))
        draw_outlines(picture, large, colour, thickness)
    return np.vstack([picture, _legend(width)])


def draw_outlines(
    picture: np.ndarray, mask: np.ndarray, colour: tuple[int, int, int], thickness: int
) -> None:
    """Outline every label of `mask` from 1 up, together with the higher ones, in `picture`.

    Args:
        picture: RGB, uint8 of shape (height, width, 3), contiguous; drawn into.
        mask: labels, uint8 of shape (height, width).
        colour: RGB.
        thickness: of the line, px.
    """
    for label in range(1, int(mask.max(initial=0)) + 1):
        inside = (mask >= label).astype(np.uint8)
        outlines, _ = cv2.findContours(inside, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(picture, outlines, -1, colour, thickness)


def widest_slice(truth: np.ndarray, prediction: np.ndarray, axis: int = 2) -> int:
    """The index along `axis` where the two masks (labels, 3-D) together cover the largest area."""
    other_axes = tuple(other for other in range(3) if other != axis)
    return int(((truth > 0) | (prediction > 0)).sum(axis=other_axes).argmax())


def _legend(width: int) -> np.ndarray:
    strip = np.zeros((_LEGEND_HEIGHT, width, 3), np.uint8)
    middle, left = _LEGEND_HEIGHT // 2, 10
    for name, (colour, thickness) in _LINES.items():
        cv2.line(strip, (left, middle), (left + 40, middle), colour, thickness)
        cv2.putText(
            strip,
            name,
            (left + 50, middle + 8),
            cv2.FONT_HERSHEY_SIMPLEX,
            0.8,
            _TEXT_COLOUR,
            1,
            cv2.LINE_AA,
        )
        left += 150
    return strip

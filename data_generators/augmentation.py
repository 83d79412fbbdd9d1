"""Random changes of training slices: drawn here, once, for both generators.

What happens to a slice is a pure function of the seed, the epoch and the slice's place in the order
of the epoch: independent of threads, replicas and interruptions. Geometry is one matrix (and one
displacement field) for the image, all of its channels, and the mask; what it brings in from outside
is air, grey 0 and class 0. Grey values then change by gain and offset, blur and noise, and are cut
off at the ends of the HU window, as the preparation does. Grey 0 stays 0: it stands for air or gas,
which lies far below the window.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from omegaconf import DictConfig
from scipy.interpolate import BSpline
from scipy.sparse import csr_array

_STREAM = 1  # keeps these numbers apart from those of the epoch's order
_DEGREE = 3  # of the splines between control points


@dataclass(frozen=True)
class AugmentationRanges:
    """From where the changes are drawn, evenly.

    Attributes:
        rotation: degrees, at most, either way.
        scale: least and greatest factor of enlargement.
        shift: at most, either way, as a share of height and of width.
        horizontal_flip, vertical_flip: probability of mirroring left and right, top and bottom.
        brightness: HU, at most, either way.
        contrast: least and greatest factor of the distance to the middle of the HU window.
        noise: HU, greatest standard deviation; normally distributed, anew in every channel.
        blur: px, greatest standard deviation of the Gaussian.
        elastic_amplitude: px by which control points move at most along either axis.
        elastic_grid: px from one control point to the next.
        hu_window: HU between grey 0 and grey 1.
    """

    rotation: float
    scale: tuple[float, float]
    shift: float
    horizontal_flip: float
    vertical_flip: float
    brightness: float
    contrast: tuple[float, float]
    noise: float
    blur: float
    elastic_amplitude: float
    elastic_grid: int
    hu_window: float


class SliceChange(NamedTuple):
    """What happens to one slice; grey values are those of images in [0, 1].

    Attributes:
        matrix: float64 of shape (2, 3), from a position (x, y, 1) in the result to the one in the
            original whose value it takes. Positions are in px from the corner of the image: the
            centre of the first pixel lies at (0.5, 0.5).
        control: px by which the control points move these positions besides, float64 of shape
            (2, rows, columns) for x and y, or None.
        grid: px from one control point to the next.
        gain, offset: grey becomes gain * grey + offset.
        blur: px, standard deviation.
        noise: grey, standard deviation.
        noise_seed: of the noise's values.
    """

    matrix: np.ndarray
    control: np.ndarray | None
    grid: int
    gain: float
    offset: float
    blur: float
    noise: float
    noise_seed: int

    def positions(self, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """x and y in the original of every pixel, float32 of shape (height, width).

        As indices of pixels: the centre of the first pixel is 0, which OpenCV counts from.
        """
        x, y = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
        found = [a * x + b * y + c - 0.5 for a, b, c in self.matrix]
        if self.control is not None:
            down, across = _spline_weights(height, self.grid), _spline_weights(width, self.grid)
            moves = [(across @ (down @ control).T).T for control in self.control]
            found = [at + move for at, move in zip(found, moves, strict=True)]
        return tuple(at.astype(np.float32) for at in found)


@dataclass(frozen=True)
class Augmentation:
    """Draws the changes of slices of `height` x `width` px; see the module."""

    ranges: AugmentationRanges
    height: int
    width: int
    seed: int

    def draw(self, epoch: int, place: int) -> SliceChange:
        """The change of the slice at `place` in the order of `epoch`."""
        ranges = self.ranges
        rng = np.random.default_rng([self.seed, epoch, place, _STREAM])
        shares = rng.random(10).tolist()
        turn, size, right, down, mirror, upend, light, contrast, blur, noise = shares
        gain = _between(*ranges.contrast, contrast)
        return SliceChange(
            matrix=self._matrix(
                angle=math.radians(ranges.rotation * _either_way(turn)),
                scale=_between(*ranges.scale, size),
                shift=(ranges.shift * _either_way(right), ranges.shift * _either_way(down)),
                flips=(mirror < ranges.horizontal_flip, upend < ranges.vertical_flip),
            ),
            control=self._control(rng) if ranges.elastic_amplitude else None,
            grid=ranges.elastic_grid,
            gain=gain,
            offset=(1 - gain) / 2 + ranges.brightness * _either_way(light) / ranges.hu_window,
            blur=ranges.blur * blur,
            noise=ranges.noise * noise / ranges.hu_window,
            noise_seed=int(rng.integers(2**31)),
        )

    def _matrix(
        self, angle: float, scale: float, shift: tuple[float, float], flips: tuple[bool, bool]
    ) -> np.ndarray:
        """Flip, scale and turn (anticlockwise) about the centre, then shift; inverted."""
        size = np.array([self.width, self.height])
        cos, sin = math.cos(angle), math.sin(angle)
        mirror = np.where(flips, -1.0, 1.0)
        back = np.diag(mirror / scale) @ [[cos, -sin], [sin, cos]]
        return np.column_stack([back, size / 2 - back @ (size / 2 + size * shift)])

    def _control(self, rng: np.random.Generator) -> np.ndarray:
        counts = [
            _spline_weights(length, self.ranges.elastic_grid).shape[1]
            for length in (self.height, self.width)
        ]
        amplitude = self.ranges.elastic_amplitude
        return rng.uniform(-amplitude, amplitude, (2, *counts))


def augmentation(cfg: DictConfig) -> Augmentation | None:
    """What `AUGMENTATION` describes; None where it is not enabled."""
    keys, window = cfg.AUGMENTATION, cfg.DATA_PREPARATION
    if not keys.ENABLED:
        return None
    ranges = AugmentationRanges(
        rotation=keys.ROTATION,
        scale=tuple(keys.SCALE),
        shift=keys.SHIFT,
        horizontal_flip=keys.HORIZONTAL_FLIP,
        vertical_flip=keys.VERTICAL_FLIP,
        brightness=keys.BRIGHTNESS,
        contrast=tuple(keys.CONTRAST),
        noise=keys.NOISE,
        blur=keys.BLUR,
        elastic_amplitude=keys.ELASTIC.AMPLITUDE,
        elastic_grid=keys.ELASTIC.GRID,
        hu_window=window.SCAN_MAX_VALUE - window.SCAN_MIN_VALUE,
    )
    return Augmentation(ranges, cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH, cfg.SEED)


def _between(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


def _either_way(share: float) -> float:
    """From [0, 1) to [-1, 1)."""
    return 2 * share - 1


@cache
def _spline_weights(length: int, grid: int) -> csr_array:
    """The weight of every control point at every pixel centre, shape (length, control points).

    Cubic B-splines: weights are positive and add up to 1, so that no pixel moves further than the
    control points do, and where these move by less than 0.48 of their distance, nothing folds over
    (Choi and Lee, Injectivity conditions of 2D and 3D uniform cubic B-spline functions, 2000).
    """
    knots = np.arange(-_DEGREE, math.ceil(length / grid) + _DEGREE + 1) * float(grid)
    return BSpline.design_matrix(np.arange(length) + 0.5, knots, _DEGREE)

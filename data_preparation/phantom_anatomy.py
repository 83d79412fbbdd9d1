"""The anatomy of a phantom patient: tissues, organs, and the functions that say where they lie.

Points are given in trunk coordinates (u, v, w): u to the patient's left, v to posterior, both in
units of the abdominal cavity (its wall lies at about ±1), and w to superior, the liver reaching
from -1 to 1. Shapes are implicit functions ("levels"), positive inside and negative outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, inf, radians, sin

import numpy as np

# Tissue: HU without contrast agent, HU added by it at its peak (portal venous phase). Textbook
# values, as in the table of https://en.wikipedia.org/wiki/Hounsfield_scale; with contrast agent,
# liver and tumours together average 99 ± 39 HU in LiTS.
TISSUE_HU: dict[str, tuple[float, float]] = {
    "air": (-1000, 0),
    "gas": (-950, 0),
    "lung": (-850, 10),
    "fat": (-100, 0),
    "fluid": (10, 0),
    "muscle": (55, 14),
    "bowel": (40, 60),
    "pancreas": (45, 58),
    "liver": (58, 52),
    "spleen": (50, 62),
    "kidney": (32, 130),
    "blood": (42, 105),
    "heart": (45, 75),
    "spongy bone": (190, 20),
    "rib": (380, 0),
    "bone": (520, 0),
    "table": (-120, 0),
}


@dataclass(frozen=True)
class Organ:
    """An ellipsoid of one tissue, in trunk coordinates; `turn` in degrees, left towards back."""

    tissue: str
    centre: tuple[float, float, float]
    radii: tuple[float, float, float]
    turn: float = 0.0
    power: float = 2.0


def _pair(
    tissue: str,
    centre: tuple[float, float, float],
    radii: tuple[float, float, float],
    turn: float = 0.0,
) -> tuple[Organ, Organ]:
    """The same organ on the patient's right and left."""
    u, v, w = centre
    return Organ(tissue, (-u, v, w), radii, turn), Organ(tissue, (u, v, w), radii, -turn)


# The inside of the abdominal and thoracic wall
CAVITY = Organ("fat", (0, 0, 0), (1, 1, inf), power=2.3)

# Drawn in this order over the liver, each over those before
ABDOMINAL_ORGANS: tuple[Organ, ...] = (
    Organ("fat", (-0.02, -0.56, 0.05), (0.022, 0.22, 0.4)),  # fissure between the lobes
    Organ("fluid", (-0.30, -0.34, -0.42), (0.12, 0.17, 0.24), 25),  # gallbladder
    Organ("spleen", (0.70, 0.40, 0.30), (0.27, 0.50, 0.50), 28),
    Organ("pancreas", (0.12, 0.16, -0.22), (0.42, 0.10, 0.15), 14),
    Organ("pancreas", (-0.18, 0.12, -0.42), (0.13, 0.14, 0.20)),
    *_pair("fat", (0.42, 0.62, -0.46), (0.24, 0.30, 0.55)),
    *_pair("muscle", (0.26, 0.78, -1.35), (0.15, 0.20, 1.0)),  # psoas
    Organ("kidney", (-0.46, 0.58, -0.52), (0.17, 0.22, 0.45), -25),
    Organ("fat", (-0.38, 0.52, -0.52), (0.07, 0.09, 0.22), -25),  # renal sinus
    Organ("kidney", (0.46, 0.60, -0.36), (0.17, 0.22, 0.45), 25),
    Organ("fat", (0.38, 0.54, -0.36), (0.07, 0.09, 0.22), 25),
    Organ("blood", (-0.16, 0.42, 0.0), (0.085, 0.085, inf)),  # inferior vena cava
)
THORACIC_ORGANS: tuple[Organ, ...] = (
    Organ("fat", (0.05, 0.1, 1.35), (0.22, 0.9, 0.55)),  # mediastinum
    Organ("heart", (0.14, -0.32, 1.32), (0.50, 0.46, 0.46), 30),
    Organ("blood", (0.10, 0.56, 0.0), (0.075, 0.085, inf)),  # aorta
    Organ("muscle", (0.02, 0.38, 1.3), (0.07, 0.06, 0.5)),  # oesophagus
)
SPINE: tuple[Organ, ...] = (
    *_pair("muscle", (0.28, 1.14, 0.0), (0.27, 0.26, inf)),
    *_pair("bone", (0.20, 1.12, 0.0), (0.14, 0.045, inf), 12),
    Organ("bone", (0.0, 1.32, 0.0), (0.030, 0.18, inf)),
    Organ("bone", (0.0, 1.10, 0.0), (0.115, 0.15, inf)),
    Organ("bone", (0.0, 0.83, 0.0), (0.170, 0.215, inf), 0, 2.4),
    Organ("spongy bone", (0.0, 0.83, 0.0), (0.142, 0.180, inf), 0, 2.4),
    Organ("fluid", (0.0, 1.09, 0.0), (0.065, 0.085, inf)),
)

_LIVER_RIGHT = Organ("liver", (-0.50, 0.04, 0.02), (0.54, 0.84, 0.90), 0, 2.5)
_LIVER_LEFT = Organ("liver", (0.02, -0.50, 0.38), (0.58, 0.42, 0.52), -12)
_LIVER_HOLLOW = Organ("fat", (0.24, 0.26, -0.52), (0.64, 0.74, 1.0), -10)
_LIVER_ANCHOR = (-0.7, 0.0, 0.6)  # where small and large livers meet
STOMACH = Organ("bowel", (0.40, -0.22, 0.30), (0.30, 0.44, 0.48), -20)


def jittered(organ: Organ, rng: np.random.Generator, amount: float = 1.0) -> Organ:
    """The organ a little displaced, scaled and turned, as it differs from patient to patient."""
    shift = amount * rng.uniform(-0.05, 0.05, 3)
    scale = 1 + amount * rng.uniform(-0.12, 0.12, 3)
    turn = organ.turn + amount * rng.uniform(-10, 10)
    centre, radii = np.array(organ.centre) + shift, np.array(organ.radii) * scale
    return Organ(organ.tissue, tuple(centre), tuple(radii), turn, organ.power)


def ellipsoid(points: Sequence[np.ndarray] | np.ndarray, organ: Organ) -> np.ndarray:
    """Level of a superellipsoid: 1 at the centre, 0 on its surface.

    Args:
        points: trunk coordinates, shape (3, ...).
        organ: centre, radii, turn in plane and power (2 is an ellipsoid, more is boxy).
    """
    centre, radii = (np.asarray(size, np.float32) for size in (organ.centre, organ.radii))
    u, v, w = (axis - origin for axis, origin in zip(points, centre, strict=True))
    cosine, sine = cos(radians(organ.turn)), sin(radians(organ.turn))
    along = (cosine * u + sine * v, cosine * v - sine * u, w)
    a, b, c = (axis / radius for axis, radius in zip(along, radii, strict=True))
    if organ.power == 2:
        return 1 - np.sqrt(a * a + b * b + c * c)
    power = np.float32(organ.power)
    return 1 - (np.abs(a) ** power + np.abs(b) ** power + np.abs(c) ** power) ** (1 / power)


def smooth_maximum(a: np.ndarray, b: np.ndarray, width: float) -> np.ndarray:
    """max(a, b) with the crease rounded where the two differ by less than `width`."""
    overlap = np.maximum(width - np.abs(a - b), 0)
    return np.maximum(a, b) + overlap * overlap / (4 * width)


def above_diaphragm(points: np.ndarray) -> np.ndarray:
    """Level of the thorax: a dome, higher on the right, that falls towards the wall."""
    u, v, w = points
    from_axis = u * u + (v + 0.06) ** 2
    return w - (1.0 - 0.12 * (u + 0.5) - 0.8 * from_axis * from_axis)


def liver(points: np.ndarray, bumps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Level of the liver: two lobes, hollow towards the bowel; `bumps` in [-1, 1] roughen it."""
    size = rng.uniform(0.82, 1.04)
    scaled = [(axis - a) / size + a for axis, a in zip(points, _LIVER_ANCHOR, strict=True)]
    right, left, hollow = (
        ellipsoid(scaled, jittered(part, rng))
        for part in (_LIVER_RIGHT, _LIVER_LEFT, _LIVER_HOLLOW)
    )
    lobes = smooth_maximum(right, left, width=0.3)
    return 0.06 * bumps - smooth_maximum(-lobes, hollow, width=0.15)


def tubes(first: np.ndarray, second: np.ndarray, radius: float) -> np.ndarray:
    """Level of branching tubes round the curves on which two smooth random fields are both 0."""
    return radius - np.hypot(first, second)


def ribs(points: np.ndarray, rib_pitch: float) -> np.ndarray:
    """Level of the ribs: slanting rings in the wall, open in front, wider open further down."""
    u, v, w = points
    beyond_wall = np.hypot(u, v) - 1.09
    phase = (w + 0.45 * v) / rib_pitch
    ring = 1 - np.abs(beyond_wall) / 0.042
    bars = np.cos(2 * np.pi * phase) - 0.5
    front_end = v + 0.75 - 0.5 * (0.7 - w)
    return np.minimum.reduce([ring, bars, 4 * front_end, 4 * (np.abs(u) - 0.3), 4 * (w + 0.9)])

"""Draws one phantom patient: an abdominal CT in HU and the labels of its liver and lesions."""

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.ndimage import find_objects, gaussian_filter

from data_preparation.phantom_anatomy import (
    ABDOMINAL_ORGANS,
    CAVITY,
    SPINE,
    STOMACH,
    THORACIC_ORGANS,
    TISSUE_HU,
    Organ,
    above_diaphragm,
    ellipsoid,
    jittered,
    liver,
    ribs,
    tubes,
)

LIVER, LESION = 1, 2
HU_RANGE = (-1024, 1500)
_LITS_SIZE = 512  # px in plane
_LITS_SPACING = (0.60, 0.95)  # mm in plane, scaled so that the phantom's pixels fill this field
_LESION_FREE_EVERY = 3  # cases


@dataclass(frozen=True)
class Patient:
    """Position, build and contrast phase of one case; lengths in mm."""

    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]
    cavity: np.ndarray  # half width, half depth, half height of the liver: the units of (u, v, w)
    centre: np.ndarray  # x and y of the cavity, from the middle of the field of view
    turn: float  # degrees
    bottom: float  # w of the first slice
    muscle: Organ  # outer surface of the muscles
    skin: Organ
    tissue_hu: dict[str, float]


class Scene:
    """A patient in the scanner: HU and labels, painted over organ by organ."""

    def __init__(self, patient: Patient, rng: np.random.Generator):
        self.patient = patient
        self.rng = rng
        self.points = _trunk_coordinates(patient, rng)
        self.hu = np.full(patient.shape, patient.tissue_hu["fat"], np.float32)
        self.labels = np.zeros(patient.shape, np.uint8)

    def paint(self, level: np.ndarray, hu: str | float | np.ndarray, label: int = 0) -> None:
        """Fill where `level` is positive; voxels that its surface cuts are filled in part.

        Args:
            level: implicit function of the shape of the scan.
            hu: the name of a tissue, a value, or a value per voxel.
            label: what the filled voxels are.
        """
        inside = level > 0
        if not inside.any():
            return
        (box,) = find_objects(inside.view(np.uint8))
        box = tuple(slice(max(side.start - 2, 0), side.stop + 2) for side in box)
        if isinstance(hu, str):
            hu = self.patient.tissue_hu[hu]
        elif isinstance(hu, np.ndarray):
            hu = hu[box]
        steepness = np.sqrt(sum(slope * slope for slope in np.gradient(level[box])))
        covered = np.clip(level[box] / np.maximum(steepness, 1e-6) + 0.5, 0, 1)
        self.hu[box] += covered * (hu - self.hu[box])
        self.labels[inside] = label

    def smooth_noise(self, knots: int) -> np.ndarray:
        """A random field of the shape of the scan; see `_smooth_noise`."""
        return _smooth_noise(self.rng, self.patient.shape, knots)


def draw_phantom(
    seed: int, case: int, size: int, slices: int
) -> tuple[np.ndarray, np.ndarray, tuple[float, float, float]]:
    """A phantom scan, the same for the same arguments.

    Args:
        seed: of the whole set of patients.
        case: which patient.
        size: px in plane, both ways.
        slices: about as many; the patient's own number is within 13 % of it, and at least 3.

    Returns:
        HU (int16) and labels (uint8: 0 background, 1 liver, 2 lesion in the liver), both of shape
        (size, size, slices) with axes to the patient's left, to posterior and to superior (LPS),
        and the spacing along these axes in mm. Every third patient is free of lesions; the first
        and the last slice show no liver.
    """
    rng = np.random.default_rng([seed, case])
    scene = Scene(_draw_patient(rng, size, slices), rng)
    _paint_vessels(scene, ellipsoid(scene.points, CAVITY), knots=9)
    _paint_bowel(scene)
    liver_level = _paint_liver(scene)
    if (case + 1) % _LESION_FREE_EVERY:
        _paint_lesions(scene, liver_level)
    _paint_hollow(scene, [jittered(STOMACH, rng)])
    _paint_organs(scene, ABDOMINAL_ORGANS)
    _paint_lungs(scene)
    _paint_organs(scene, THORACIC_ORGANS)
    _paint_wall(scene)
    scene.paint(ribs(scene.points, rng.uniform(0.26, 0.32)), "rib")
    _paint_organs(scene, SPINE)
    _paint_table(scene)
    return _scanned(scene), scene.labels, scene.patient.spacing


def _draw_patient(rng: np.random.Generator, size: int, slices: int) -> Patient:
    count = max(3, round(slices * rng.uniform(0.87, 1.13)))
    lits_spacing = rng.uniform(*_LITS_SPACING)
    field = _LITS_SIZE * lits_spacing
    skin = field * rng.uniform(0.43, 0.47) * np.array([1, rng.uniform(0.70, 0.84)])
    # The field of view follows the patient's build, so that large fields show more fat
    fat = skin[0] * (rng.uniform(0.05, 0.12) + 0.45 * (lits_spacing - _LITS_SPACING[0]))
    muscle = skin - fat * np.array([1.0, 0.8])
    wall, back = 0.08 * muscle[0], 0.24 * muscle[1]
    cavity = np.array([muscle[0] - wall, muscle[1] - (wall + back) / 2, rng.uniform(75, 98)])
    forward = (back - wall) / 2  # the back's muscles are thicker than those in front
    below, above = rng.uniform(0.25, 0.5), rng.uniform(0.15, 0.35)

    def shell(radii: np.ndarray) -> Organ:
        centre, (u, v) = (0.0, forward / cavity[1], 0.0), radii / cavity[:2]
        return Organ("skin", centre, (u, v, np.inf), power=CAVITY.power)

    contrast = rng.uniform(0.2, 1.0)
    return Patient(
        shape=(size, size, count),
        spacing=(field / size, field / size, float((2 + below + above) * cavity[2] / (count - 1))),
        cavity=cavity,
        centre=field * rng.uniform(-0.02, 0.02, 2) - [0, forward],
        turn=rng.uniform(-5, 5),
        bottom=-1 - below,
        muscle=shell(muscle),
        skin=shell(skin),
        tissue_hu={
            tissue: native + contrast * gain + rng.uniform(-12, 12)
            for tissue, (native, gain) in TISSUE_HU.items()
        },
    )


def _smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], knots: int) -> np.ndarray:
    """A random field of about [-1, 1]: a spline through `knots` values along each axis."""
    noise = rng.uniform(-1, 1, (knots,) * len(shape))
    for axis, length in enumerate(shape):
        spline = CubicSpline(np.linspace(0, 1, knots), noise, axis=axis)
        noise = spline(np.linspace(0, 1, length))
    return noise.astype(np.float32)


def _field_of_view(patient: Patient) -> tuple[np.ndarray, np.ndarray]:
    """x and y in mm from the middle of the field, shapes (size, 1) and (1, size)."""
    size = patient.shape[0]
    position = (np.arange(size) - (size - 1) / 2) * patient.spacing[0]
    return position[:, None], position[None, :]


def _trunk_coordinates(patient: Patient, rng: np.random.Generator) -> np.ndarray:
    """(u, v, w) of every voxel, shifted, turned and bent as this patient is; shape (3, x, y, z)."""
    x, y = _field_of_view(patient)
    x, y = x - patient.centre[0], y - patient.centre[1]
    c, s = np.cos(np.radians(patient.turn)), np.sin(np.radians(patient.turn))
    u, v = (c * x + s * y) / patient.cavity[0], (c * y - s * x) / patient.cavity[1]
    w = patient.bottom + np.arange(patient.shape[2]) * patient.spacing[2] / patient.cavity[2]
    straight = np.stack(np.broadcast_arrays(u[..., None], v[..., None], w)).astype(np.float32)
    bend = np.stack([_smooth_noise(rng, patient.shape, knots=5) for _ in straight])
    return straight + np.float32(0.05) * bend


def _paint_organs(scene: Scene, organs: tuple[Organ, ...]) -> None:
    for organ in organs:
        scene.paint(ellipsoid(scene.points, jittered(organ, scene.rng, 0.6)), organ.tissue)


def _paint_vessels(scene: Scene, within: np.ndarray, knots: int, label: int = 0) -> None:
    """Blood vessels where the level `within` is positive; more `knots` make more of them."""
    level = tubes(scene.smooth_noise(knots), scene.smooth_noise(knots), radius=0.13)
    scene.paint(np.minimum(level, within), "blood", label)


def _paint_bowel(scene: Scene) -> None:
    """Loops of bowel in front and below; the organs drawn later push them aside."""
    loops = []
    for _ in range(32):
        u, v = scene.rng.uniform([-0.8, -0.8], [0.9, 0.3])
        w = scene.rng.uniform(-1.5, 0.5 if u > 0.45 else -0.25)  # up to the spleen on the left
        radii = scene.rng.uniform([0.12, 0.12, 0.15], [0.24, 0.24, 0.32])
        loops.append(Organ("bowel", (u, v, w), tuple(radii)))
    _paint_hollow(scene, loops)


def _paint_hollow(scene: Scene, organs: list[Organ]) -> None:
    """Wall, contents (fluid, food or contrast agent) and, in half of them, gas above these."""
    level = np.full(scene.patient.shape, -np.inf, np.float32)
    nearest = np.zeros(level.shape, int)
    for position, organ in enumerate(organs):
        own = ellipsoid(scene.points, organ)
        nearest[own > level] = position
        np.maximum(level, own, out=level)

    contents = scene.rng.uniform(0, 160, len(organs)).astype(np.float32)
    surface = scene.rng.uniform(-0.6, 0.5, len(organs)) - 2 * scene.rng.integers(0, 2, len(organs))
    heights = [
        organ.centre[1] + organ.radii[1] * at for organ, at in zip(organs, surface, strict=True)
    ]
    gas = np.asarray(heights, np.float32)[nearest] - scene.points[1]
    scene.paint(level, "bowel")
    scene.paint(level - 0.18, contents[nearest])
    scene.paint(np.minimum(level - 0.18, 4 * gas), "gas")


def _paint_liver(scene: Scene) -> np.ndarray:
    """Paint the liver with its vessels and return its level; lungs and wall will bound it."""
    level = liver(scene.points, scene.smooth_noise(knots=8), scene.rng)
    hu = scene.patient.tissue_hu["liver"] + 4 * scene.smooth_noise(knots=10)
    scene.paint(level, hu, LIVER)
    _paint_vessels(scene, level - 0.08, knots=8, label=LIVER)
    return level


def _paint_lesions(scene: Scene, liver_level: np.ndarray) -> None:
    """One to six dark lesions of about 9 to 28 mm radius, centred well inside the liver."""
    rng, patient, points = scene.rng, scene.patient, scene.points
    bounds = (liver_level, ellipsoid(points, CAVITY), -above_diaphragm(points))
    depth = np.minimum.reduce(bounds)
    candidates = points[:, depth > 0.5 * depth.max()]
    for _ in range(rng.integers(1, 7)):
        centre = candidates[:, int(rng.random() * candidates.shape[1])]
        radii = rng.uniform(9, 28) * rng.uniform(0.8, 1.2, 3) / patient.cavity
        lesion = Organ("lesion", tuple(centre), tuple(radii), rng.uniform(0, 180))
        level = np.minimum(ellipsoid(points, lesion), liver_level)
        scene.paint(level, patient.tissue_hu["liver"] - rng.uniform(30, 42), LESION)


def _paint_lungs(scene: Scene) -> None:
    level = above_diaphragm(scene.points)
    scene.paint(level, "lung")
    _paint_vessels(scene, level, knots=12)


def _paint_wall(scene: Scene) -> None:
    """From inside to outside: muscle beyond the cavity, fat beyond the muscle, air beyond skin."""
    for shell, tissue in (
        (CAVITY, "muscle"),
        (scene.patient.muscle, "fat"),
        (scene.patient.skin, "air"),
    ):
        scene.paint(-ellipsoid(scene.points, shell), tissue)


def _paint_table(scene: Scene) -> None:
    """A thin curved plate under the patient."""
    patient = scene.patient
    x, y = _field_of_view(patient)
    back = patient.centre[1] + patient.cavity[1] * (patient.skin.centre[1] + patient.skin.radii[1])
    plate = 5 - np.abs(y - back - 14 + (x / 30) ** 2)
    level = np.minimum(plate, 0.9 * patient.cavity[0] - np.abs(x))
    scene.paint(np.repeat(level[..., None], patient.shape[2], axis=2), "table")


def _scanned(scene: Scene) -> np.ndarray:
    """What a scanner makes of the scene: a slight drift, and noise that neighbours share."""
    noise = gaussian_filter(scene.rng.standard_normal(scene.hu.shape, np.float32), (0.6, 0.6, 0))
    noise *= scene.rng.uniform(7, 14) / noise.std()
    drift = 4 * scene.smooth_noise(knots=4)
    return np.clip((scene.hu + noise + drift).round(), *HU_RANGE).astype(np.int16)

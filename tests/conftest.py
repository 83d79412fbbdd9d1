"""Shared fixtures: the real configuration, and slices small enough to train on in a test."""

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import utils  # noqa: F401  (sets the environment before TensorFlow is imported)
from utils.config import validate_config
from utils.images import encode_png
from utils.slice_files import SlicePair

REAL_CT = Path(__file__).resolve().parents[2] / "shared" / "data" / "ct"
SIZE = 32  # px


@pytest.fixture(autouse=True)
def plain_precision():
    """Every test begins in float32, whatever the one before it has trained in."""
    yield
    if keras := sys.modules.get("keras"):
        keras.config.set_dtype_policy("float32")


@pytest.fixture
def real_ct() -> Path:
    """The folder of a real CT with its liver mask."""
    if not REAL_CT.is_dir():
        pytest.skip("the real CT (shared/data/ct beside the checkout) is not here")
    return REAL_CT


def write_slices(folder: Path, cases: dict[str, int], seed: int = 0) -> None:
    """Slices of a bright disc on noise: `cases` gives the number of slices per case id.

    The disc is class 1; every third slice has none.
    """
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    (folder / "mask").mkdir()
    for case, count in cases.items():
        for number in range(count):
            mask = np.zeros((SIZE, SIZE), np.uint8)
            if number % 3 != 2:
                centre = [int(value) for value in rng.integers(10, 22, 2)]
                cv2.circle(mask, centre, int(rng.integers(5, 9)), 1, thickness=-1)
            grey = mask[..., None] * 150 + rng.integers(0, 60, (SIZE, SIZE, 3))
            (folder / "images" / f"image_{case}_{number}.png").write_bytes(
                encode_png(grey.astype(np.uint8))
            )
            (folder / "mask" / f"mask_{case}_{number}.png").write_bytes(encode_png(mask))


def write_pair(folder: Path, name: str, image: np.ndarray, mask: np.ndarray) -> SlicePair:
    pair = SlicePair(folder / f"image_{name}.png", folder / f"mask_{name}.png")
    pair.image.write_bytes(encode_png(image))
    pair.mask.write_bytes(encode_png(mask))
    return pair


@pytest.fixture
def numbered(tmp_path):
    """Ten pairs whose grey and mask tell their number: grey 10 n, and class 1 in n pixels."""
    pairs = []
    for number in range(10):
        mask = np.zeros((SIZE, SIZE), np.uint8)
        mask.flat[:number] = 1
        image = np.full((SIZE, SIZE, 3), 10 * number, np.uint8)
        pairs.append(write_pair(tmp_path, f"7_{number}", image, mask))
    return pairs


@pytest.fixture
def slices(tmp_path: Path) -> Path:
    """A work directory with data/train (2 cases, 14 slices) and data/val (2 cases, 9 slices)."""
    write_slices(tmp_path / "data" / "train", {"28": 8, "29": 6}, seed=1)
    write_slices(tmp_path / "data" / "val", {"0": 5, "1": 4}, seed=2)
    return tmp_path


TINY = {
    "MODEL": {"FILTERS": [4, 4, 8, 8, 8], "BACKBONE": {"TYPE": "unet3plus"}, "L2": 0.0},
    "INPUT": {"HEIGHT": SIZE, "WIDTH": SIZE},
    "HYPER_PARAMETERS": {"EPOCHS": 2, "BATCH_SIZE": 4, "LEARNING_RATE": 1e-3},
    "USE_MULTI_GPUS": {"VALUE": False},
    "VERBOSE": 0,
}


LEARNING = {"EPOCHS": 8, "LEARNING_RATE": 1e-2}  # enough for the tiny network to find the discs


def merged(base: dict, changes: dict) -> dict:
    """`base` with `changes` on top, section by section."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


@pytest.fixture
def make_cfg(tmp_path: Path):
    """A checked configuration of a tiny network in a temporary work directory."""

    def make(**changes):
        return validate_config(merged({**TINY, "WORK_DIR": str(tmp_path)}, changes))

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A work directory with a trained tiny network, a maker of its configuration, the result."""
    from train import train

    folder = tmp_path_factory.mktemp("work")
    write_slices(folder / "data" / "train", {"28": 8, "29": 6}, seed=1)
    write_slices(folder / "data" / "val", {"0": 5, "1": 4}, seed=2)

    def make(**changes):
        own = {"WORK_DIR": str(folder), "MODEL": {"TYPE": "unet3plus_deepsup_cgm"}}
        return validate_config(merged(merged(TINY, own), changes))

    return folder, make, train(make(HYPER_PARAMETERS=LEARNING))

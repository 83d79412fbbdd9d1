"""What augmentation does to training slices, as a picture to look at before training.

Usage, from the project's folder:
    python -m data_generators.preview AUGMENTATION.ENABLED=True [AUGMENTATION.ROTATION=30 ...]
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from data_generators.augmentation import augmentation
from data_generators.change_slice import change_slice
from data_generators.slice_reader import slice_reader
from utils.case_split import TRAIN
from utils.cli import run_command
from utils.contour_picture import draw_outlines
from utils.errors import UserError
from utils.images import encode_png
from utils.log import console
from utils.paths import write_bytes
from utils.pictures import panel, to_rgb
from utils.results import results_folder
from utils.slice_files import list_split

SLICES, EPOCHS = 6, 4
_COLOUR = (255, 150, 20)  # RGB, of the mask's outline


def preview(cfg: DictConfig) -> Path:
    """Draw training slices with foreground as they are and in the first epochs, mask outlined.

    Slices are taken at even distances from the whole list. The changes are of the kind that
    training draws, though not the very ones, since there a slice has another place in the order.

    Returns:
        The picture, RESULTS_PATH/augmentation.png.

    Raises:
        UserError: augmentation is not enabled, or no slice has foreground.
    """
    change = augmentation(cfg)
    if change is None:
        raise UserError("AUGMENTATION.ENABLED: found False; set True to see what it does")
    rows = []
    for place, (name, image, mask) in enumerate(islice(_slices(cfg), SLICES)):
        versions = {name: (image, mask)} | {
            f"epoch {epoch}": change_slice(image, mask, change.draw(epoch, place))
            for epoch in range(EPOCHS)
        }
        center = cfg.SHOW_CENTER_CHANNEL_IMAGE
        rows.append(panel({title: _picture(*pair, center) for title, pair in versions.items()}))
    if not rows:
        raise UserError("DATASET.TRAIN: no slice has foreground; there is nothing to show")
    path = results_folder(cfg) / "augmentation.png"
    write_bytes(path, encode_png(np.vstack(rows)))
    console.print(f"{len(rows)} slices, as they are and in {EPOCHS} epochs: {path}")
    return path


def _slices(cfg: DictConfig) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, image and mask of slices with foreground; neighbours in the list come far apart."""
    pairs, reader = list_split(cfg, TRAIN), slice_reader(cfg)
    for start in range(stride := max(1, len(pairs) // (4 * SLICES))):
        for pair in pairs[start::stride]:
            image, mask = reader.read(pair)
            if mask.any():
                yield pair.image.stem, image, mask


def _picture(image: np.ndarray, mask: np.ndarray, center_channel: bool) -> np.ndarray:
    grey = np.rint(image * 255).astype(np.uint8)
    picture = np.ascontiguousarray(to_rgb(grey, center_channel))
    draw_outlines(picture, mask, _COLOUR, thickness=1)
    return picture


if __name__ == "__main__":
    run_command(preview)

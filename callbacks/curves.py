"""The curves of a run as a picture."""

from collections.abc import Sequence
from pathlib import Path

from utils.curve_picture import Panel, curve_picture
from utils.images import encode_png
from utils.paths import write_bytes

_PANELS = {"Loss": "loss", "Dice coefficient": "dice_coef"}


def write_curves(path: Path, history: dict[str, Sequence[float]], best_epoch: int | None) -> None:
    """Draw loss and Dice of training and validation, and the learning rate, over the epochs.

    Args:
        path: of the PNG file.
        history: every logged value of every epoch.
        best_epoch: its number from 1, marked where there is one.
    """
    panels = [
        Panel(
            title, {"training": history.get(key, ()), "validation": history.get(f"val_{key}", ())}
        )
        for title, key in _PANELS.items()
    ]
    panels.append(Panel("Learning rate", {"learning rate": history.get("learning_rate", ())}))
    write_bytes(path, encode_png(curve_picture(panels, best_epoch)))

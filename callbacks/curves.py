"""The curves of a run as a picture."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from utils.line_chart import Panel, line_chart

_PANELS = {"Loss": "loss", "Dice coefficient": "dice_coef"}


def write_curves(path: Path, history: dict[str, Sequence[float]], best_epoch: int | None) -> Figure:
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
    epochs = range(1, 1 + max(map(len, history.values()), default=0))
    return line_chart(path, panels, "epoch", epochs, best_epoch)

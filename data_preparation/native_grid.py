"""From the network's grid back to the grid of the scan: masks, spacing, and the true mask there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_preparation.scans import read_scan, view_transform
from data_preparation.slices import unfit_mask
from utils.case_records import file_state
from utils.errors import UserError
from utils.log import logger

NATIVE, NETWORK = "native", "network"


class ComparableMasks(NamedTuple):
    """Truth and prediction of one case on one grid, `view[slice, row, column]`.

    Attributes:
        truth: labels, uint8.
        prediction: labels, uint8.
        spacing: of slices, rows and columns, mm.
        grid: "native", the scan's own, or "network", that of the prepared slices.
    """

    truth: np.ndarray
    prediction: np.ndarray
    spacing: tuple[float, float, float]
    grid: str


def unfit_masks(masks: np.ndarray, rows: int, columns: int, fit: str) -> np.ndarray:
    """Masks (slices, height, width) of the network's size at the scan's `rows` x `columns`."""
    return np.stack([unfit_mask(mask, rows, columns, fit) for mask in masks])


def view_spacing(spacing: Sequence[float], axis_codes: str) -> tuple[float, float, float]:
    """Spacing along a file's axes, mm, in the order slices, rows, columns."""
    ordered = np.zeros(3)
    ordered[view_transform(axis_codes)[:, 0].astype(int)] = spacing
    return tuple(float(size) for size in ordered)


def on_common_grid(
    record: dict[str, Any], truth: np.ndarray, prediction: np.ndarray
) -> ComparableMasks:
    """Truth and prediction of a prepared case on the scan's native grid, if that can be.

    Args:
        record: of the case, from cases.json.
        truth, prediction: class ids on the network's grid, uint8 of shape (slices, height, width).

    Returns:
        On the native grid with the original segmentation, where its file is still the one that was
        prepared; otherwise on the network's grid with `truth`.
    """
    rows, columns, fit = record["rows"], record["columns"], record["parameters"]["fit"]
    spacing = view_spacing(record["spacing_mm"], record["axis_codes"])
    native_truth = _original_truth(record)
    if native_truth is not None:
        native = unfit_masks(prediction, rows, columns, fit)
        return ComparableMasks(native_truth, native, spacing, NATIVE)
    height, width = prediction.shape[1:]
    if fit == "resize":
        spacing = (spacing[0], spacing[1] * rows / height, spacing[2] * columns / width)
    return ComparableMasks(truth, prediction, spacing, NETWORK)


def _original_truth(record: dict[str, Any]) -> np.ndarray | None:
    source = record["sources"]["segmentation"]
    path = Path(source["path"])
    try:
        if file_state(path) != source:
            logger.warning(f"{path}: changed since it was prepared; scored on the network's grid")
            return None
        segmentation = read_scan(path, record["axis_codes"])
        return np.stack([segmentation.labels(index) for index in range(len(segmentation))])
    except (OSError, UserError) as error:
        logger.warning(f"{path}: cannot be read; scored on the network's grid ({error})")
        return None

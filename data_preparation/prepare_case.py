"""One scan and its mask → PNG slices and the record of the case."""

from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_preparation.scans import (
    LABEL_NAMES,
    ScanFiles,
    header_doubts,
    read_scan,
    read_segmentation,
    view_transform,
)
from data_preparation.slices import SliceSettings, fit_mask, grey_slices, three_slices
from utils.errors import UserError
from utils.foreground import FOREGROUND
from utils.images import case_and_slice, encode_png, image_to_mask_name
from utils.paths import write_bytes

LIVER = LABEL_NAMES.index("liver")


@dataclass(frozen=True)
class SliceFolders:
    """Where the slices of a split are written."""

    images: Path
    masks: Path


@dataclass(frozen=True)
class CaseJob:
    """All that it takes to prepare one case.

    Attributes:
        files: the scan and its mask.
        sources: `file_state` of both, taken before they are read.
        folders: where the slices go.
        settings: how they are drawn.
        labels: liver (tumour counts as liver) or liver_and_tumour.
        axis_codes: of the stored axes where the header is not to be trusted, otherwise None.
    """

    files: ScanFiles
    sources: dict[str, Any]
    folders: SliceFolders
    settings: SliceSettings
    labels: str
    axis_codes: str | None

    @property
    def parameters(self) -> dict[str, Any]:
        """What the slices depend on besides the source files."""
        return asdict(self.settings) | {"labels": self.labels, "axis_codes": self.axis_codes}


class CaseResult(NamedTuple):
    """The record of a finished case, or the reason why it failed."""

    record: dict[str, Any] | None
    failure: str | None = None


def try_case(job: CaseJob) -> CaseResult:
    """`prepare_case`, its exceptions turned into a reason, so that other cases go on."""
    try:
        return CaseResult(prepare_case(job))
    except UserError as error:
        return CaseResult(None, str(error))
    except Exception as error:  # whatever it is, it concerns this case only
        return CaseResult(None, f"{job.files.volume}: {type(error).__name__}: {error}")


def prepare_case(job: CaseJob) -> dict[str, Any]:
    """Write `image_<case>_<slice>.png` and `mask_<case>_<slice>.png` of every slice.

    Returns:
        The record of the case for cases.json.

    Raises:
        UserError: a file is damaged, the two do not fit each other, or a label is unknown.
    """
    volume = read_scan(job.files.volume, job.axis_codes)
    segmentation = read_segmentation(job.files.segmentation, volume)
    grey = grey_slices(volume, job.settings)
    foreground = ""
    voxels = np.zeros(len(LABEL_NAMES), np.int64)
    for index in range(len(volume)):
        labels = segmentation.labels(index)
        voxels += np.bincount(labels.ravel(), minlength=len(LABEL_NAMES))
        classes = np.minimum(labels, LIVER) if job.labels == "liver" else labels
        mask = fit_mask(classes, job.settings)
        foreground += str(int(mask.any()))
        image_file, mask_file = slice_files(job.folders, job.files.case, index)
        write_bytes(image_file, encode_png(three_slices(grey, index)))
        write_bytes(mask_file, encode_png(mask))

    slices, rows, columns = volume.stored.shape
    return {
        "sources": job.sources,
        "parameters": job.parameters,
        "shape": list(volume.shape),
        "affine": volume.affine.tolist(),
        "axis_codes": volume.axis_codes,
        "orientation": view_transform(volume.axis_codes).astype(int).tolist(),
        "spacing_mm": list(volume.spacing),
        "slices": slices,
        "rows": rows,
        "columns": columns,
        "hu_range": list(volume.value_range()),
        FOREGROUND: foreground,
        "label_voxels": dict(zip(LABEL_NAMES, voxels.tolist(), strict=True)),
        "warnings": header_doubts(volume, segmentation),
    }


def slice_files(folders: SliceFolders, case: str, index: int) -> tuple[Path, Path]:
    """The image and the mask file of a slice."""
    image = f"image_{case}_{index}.png"
    return folders.images / image, folders.masks / image_to_mask_name(image)


def existing_slices(folders: SliceFolders) -> dict[str, set[Path]]:
    """The image and mask files of every case that are there, by case id."""
    files = defaultdict(set)
    for path in folders.images.glob("image_*.png"):
        files[case_and_slice(path)[0]].add(path)
    case_by_mask = {case_and_slice(slice_files(folders, case, 0)[1])[0]: case for case in files}
    for path in folders.masks.glob("mask_*.png"):
        case = case_and_slice(path)[0]
        files[case_by_mask.get(case, case)].add(path)
    return files

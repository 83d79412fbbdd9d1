"""Which NIfTI scans a path in the configuration means, and what their masks are called."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from utils.errors import UserError
from utils.images import IMAGE_SUFFIXES
from utils.paths import natural_key, read_path_list, resolve_path

SCAN_SUFFIXES = (".nii", ".nii.gz")
_SCAN_NAME = re.compile(
    r"(?P<kind>volume|segmentation)-(?P<case>.+?)\.nii(\.gz)?", flags=re.IGNORECASE | re.DOTALL
)


class ScanFiles(NamedTuple):
    """The files of one case; `segmentation` is None where there is no mask."""

    case: str
    volume: Path
    segmentation: Path | None


class ScanFolder(NamedTuple):
    """What a folder holds: usable cases, reasons against others, masks without a volume."""

    scans: list[ScanFiles]
    failures: dict[str, str]
    orphans: list[Path]


def find_scans(folder: Path) -> ScanFolder:
    """The `volume-<case>.nii[.gz]` of `folder`, in natural order, with their `segmentation-…`.

    A case that has one of its files both as .nii and as .nii.gz is a failure.

    Raises:
        UserError: the folder is missing or has no volumes.
    """
    if not folder.is_dir():
        raise UserError(f"folder not found: {folder}")
    found: dict[str, dict[str, list[Path]]] = {"volume": {}, "segmentation": {}}
    for path in sorted(folder.iterdir(), key=lambda path: natural_key(path.name)):
        if match := _SCAN_NAME.fullmatch(path.name):
            found[match["kind"].lower()].setdefault(match["case"], []).append(path)
    volumes, segmentations = found["volume"], found["segmentation"]

    scans, failures = [], {}
    for case, paths in volumes.items():
        masks = segmentations.get(case, [])
        if twins := [twin for twin in (paths, masks) if len(twin) > 1]:
            names = " and ".join(path.name for path in twins[0])
            failures[case] = f"found {names} in {folder}; keep one of the two"
        else:
            scans.append(ScanFiles(case, paths[0], masks[0] if masks else None))
    if not volumes:
        raise UserError(f"no volume-<case>.nii or .nii.gz in {folder}")
    orphans = [
        mask for case, masks in segmentations.items() if case not in volumes for mask in masks
    ]
    return ScanFolder(scans, failures, orphans)


def find_scan_inputs(source: str | Sequence[str], work_dir: Path, key: str) -> list[Path] | None:
    """The scans that `source` names: a NIfTI file, a list of them, or a folder of scans.

    A list may be a text file of paths, see `read_path_list`. In a folder, files named
    "segmentation…" are masks and are passed over.

    Returns:
        None where `source` does not name scans (a folder or list of slice images).

    Raises:
        UserError: scans and slice images are mixed, or a scan is not there.
    """
    source = read_path_list(source, work_dir, key)
    if not isinstance(source, str):
        return _from_list([resolve_path(name, work_dir) for name in source], key)
    path = resolve_path(source, work_dir)
    if _is_scan(path):
        return _from_list([path], key)
    if not path.is_dir():
        return None
    files = sorted(path.iterdir(), key=lambda file: natural_key(file.name))
    scans = [
        file for file in files if _is_scan(file) and not file.name.startswith(("segmentation", "."))
    ]
    if scans and (images := [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]):
        raise UserError(
            f"{key}: {path} mixes scans ({scans[0].name}, …) and slice images ({images[0].name}, "
            "…); name a folder or a list of one kind"
        )
    return scans or None


def scan_stem(scan: Path) -> str:
    """The name of a scan's file without .nii or .nii.gz."""
    return re.sub(r"\.nii(\.gz)?$", "", scan.name, flags=re.IGNORECASE)


def mask_name(scan: Path) -> str:
    """The file name of a scan's predicted mask: "volume" becomes "segmentation", always .nii.gz."""
    stem = scan_stem(scan)
    if "volume" in stem:
        return stem.replace("volume", "segmentation") + ".nii.gz"
    return f"{stem}_segmentation.nii.gz"


def _from_list(paths: list[Path], key: str) -> list[Path] | None:
    scans = [path for path in paths if _is_scan(path)]
    if not scans:
        return None
    if others := [path for path in paths if not _is_scan(path)]:
        raise UserError(
            f"{key}: found scans ({scans[0].name}, …) and slice images ({others[0].name}, …) in "
            "one list; name one kind"
        )
    if missing := [str(path) for path in scans if not path.is_file()]:
        raise UserError.listing(f"{key}: scans not found", missing)
    return scans


def _is_scan(path: Path) -> bool:
    return path.name.lower().endswith(SCAN_SUFFIXES)

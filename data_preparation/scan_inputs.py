"""Which NIfTI scans a path in the configuration means, and what their masks are called."""

from collections.abc import Sequence
from pathlib import Path

from utils.errors import UserError
from utils.images import IMAGE_SUFFIXES
from utils.paths import natural_key, resolve_path

SCAN_SUFFIXES = (".nii", ".nii.gz")


def find_scan_inputs(source: str | Sequence[str], work_dir: Path, key: str) -> list[Path] | None:
    """The scans that `source` names: a NIfTI file, a list of them, or a folder of scans.

    In a folder, files named "segmentation…" are masks and are passed over.

    Returns:
        None where `source` does not name scans (a folder or list of slice images).

    Raises:
        UserError: scans and slice images are mixed, or a scan is not there.
    """
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


def mask_name(scan: Path) -> str:
    """The file name of a scan's predicted mask: "volume" becomes "segmentation", always .nii.gz."""
    stem = scan.name.removesuffix(".gz").removesuffix(".nii")
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

"""`cases.json`: which cases are prepared, from what and how; enough to go back to their grid."""

from pathlib import Path
from typing import Any

from utils.errors import UserError
from utils.paths import natural_key, read_json, write_json

FORMAT = 1


def cases_file(images_folder: Path) -> Path:
    """Where the records of the slices in `images_folder` lie: beside it."""
    return images_folder.parent / "cases.json"


def read_cases(path: Path) -> dict[str, dict[str, Any]]:
    """The record of every prepared case, by case id (data_preparation/README.md has the fields).

    Raises:
        UserError: the file is missing, damaged or of another format.
    """
    content = read_json(path, "List of prepared cases")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(
            f"{path}: not of format {FORMAT}; delete it and run "
            "'python data_preparation/preprocess_data.py'"
        )
    return content["cases"]


def write_cases(path: Path, records: dict[str, dict[str, Any]]) -> None:
    """Write the records in one step, in natural order of the case ids."""
    ordered = {case: records[case] for case in sorted(records, key=natural_key)}
    write_json(path, {"format": FORMAT, "cases": ordered})


def file_state(path: Path) -> dict[str, Any]:
    """What tells whether a source file is still the same."""
    status = path.stat()
    return {
        "path": str(path.absolute()),
        "bytes": status.st_size,
        "modified_ns": status.st_mtime_ns,
    }

"""Where files lie, and how they are written so that none is ever half there."""

import csv
import io
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from utils.errors import UserError

WEIGHTS_SUFFIX = ".weights.h5"  # of our weight files, as Keras 3 demands
LEGACY_SUFFIXES = (".hdf5", ".h5")  # of Keras 2's


def resolve_path(path: str | Path, work_dir: str | Path) -> Path:
    """The file that a path in the configuration means.

    A path that begins with "/" and exists is absolute; otherwise it lies under `work_dir`, so that
    the predecessor's "/data/train/images" keeps working. Two cases need more care: a path that
    already lies under `work_dir` is taken as it is, and one that exists nowhere yet (an output) is
    absolute when its parent folder exists there (not counting "/" itself) and not here.
    """
    work_dir, path = Path(work_dir).absolute(), Path(path).expanduser()
    if not path.is_absolute():
        return work_dir / path
    if path.exists() or path.is_relative_to(work_dir):
        return path
    inside = work_dir / path.relative_to(path.anchor)
    if inside.exists() or inside.parent.exists():
        return inside
    is_new_in_existing_folder = path.parent != Path(path.anchor) and path.parent.exists()
    return path if is_new_in_existing_folder else inside


def output_folder(path: Path, key: str) -> Path:
    """`path` as a folder that exists and can be written to; call it before long work.

    Raises:
        UserError: names `key` where that is not so.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise UserError(f"{key}: cannot write to {path} ({error.strerror})") from None


@contextmanager
def atomic_path(path: Path, size: int = 0) -> Iterator[Path]:
    """A temporary name beside `path`, renamed to it on success and removed on failure.

    The temporary name starts with a dot and keeps all of `path`'s suffixes, so that writers which
    look at the ending (".weights.h5", ".nii.gz") do the right thing. What is written may be a
    folder; it takes the place of a folder of that name.

    Args:
        path: of what is to be written.
        size: bytes to claim on the disk first, for writers that fail badly when it is full.

    Raises:
        UserError: the disk is full or does not let it be written; what was at `path` is unchanged.
    """
    temporary = path.with_name(f".{uuid.uuid4().hex[:8]}.{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if size:
            with temporary.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        yield temporary
        if temporary.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # a folder is not replaced by renaming
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({_reason(error)})") from None
    finally:
        with suppress(OSError):
            if temporary.is_dir():
                shutil.rmtree(temporary)
            temporary.unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` in one step."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON to `path` in one step."""
    write_bytes(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write `rows` as CSV to `path` in one step; the first one's keys are the columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(path, text.getvalue().encode())


def read_json(path: Path, what: str) -> Any:
    """The content of a JSON file.

    Raises:
        UserError: the file is missing or is not JSON; `what` says in words what it should hold.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{what} not found: {path}") from None
    except ValueError as error:
        raise UserError(f"{what} is not valid JSON: {path} ({error})") from None


def read_path_list(
    source: str | Sequence[str], work_dir: str | Path, key: str
) -> str | Sequence[str]:
    """`source`, or where it is a text file (`.txt`), the paths in it, one per line.

    For lists too long for a configuration, which takes 0.1 ms to read an entry.

    Raises:
        UserError: the text file is missing, empty, or no text in UTF-8.
    """
    if not isinstance(source, str) or not source.lower().endswith(".txt"):
        return source
    path = resolve_path(source, work_dir)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        raise UserError(f"{key}: {path}: cannot be read ({reason})") from None
    if not (paths := [line.strip() for line in lines if line.strip()]):
        raise UserError(f"{key}: {path} is empty; expected one path per line")
    return paths


def natural_key(name: str) -> list[int | str]:
    """A sort key that puts "a2" before "a10"."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if position % 2 else part for position, part in enumerate(parts)]

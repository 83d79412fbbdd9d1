"""Extract the NIfTI files of a zip archive into one flat folder (standard library only).

Usage: python3 unzip_scans.py ARCHIVE FOLDER
"""

import shutil
import sys
import zipfile
import zlib
from pathlib import Path, PurePosixPath


def unzip_scans(archive: Path, folder: Path) -> int:
    """Extract every .nii and .nii.gz, whatever folder of the archive holds it; returns how many.

    Only the last part of a member's name is used, and links become plain files, so no member can
    lead out of `folder`.

    Raises:
        ValueError: the archive has no scans, two of the same name, or more than fits on the disk.
    """
    with zipfile.ZipFile(archive) as content:
        members = [(_file_name(member), member) for member in content.infolist()]
        scans = [(name, member) for name, member in members if _is_scan(name)]
        needed, free = sum(member.file_size for _, member in scans), shutil.disk_usage(folder).free
        if needed > free:
            raise ValueError(f"has {needed:,} bytes of scans; the disk has {free:,} free")
        for name, member in scans:
            if (folder / name).exists():
                raise ValueError(f"has two files named {name}")
            with content.open(member) as source, (folder / name).open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    count = len(list(folder.iterdir()))
    if not count:
        raise ValueError("has no .nii or .nii.gz files")
    return count


def _file_name(member: zipfile.ZipInfo) -> str:
    """The last part of a member's name; nothing for a folder."""
    return "" if member.is_dir() else PurePosixPath(member.filename.replace("\\", "/")).name


def _is_scan(name: str) -> bool:
    return name.lower().endswith((".nii", ".nii.gz")) and not name.startswith(".")


if __name__ == "__main__":
    archive_file, target_folder = map(Path, sys.argv[1:])
    try:
        print(f"{archive_file.name}: {unzip_scans(archive_file, target_folder)} files")
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        print(f"Error: {archive_file}: {error}", file=sys.stderr)
        sys.exit(2)

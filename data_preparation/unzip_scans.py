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

    Only the last part of a member's name is used, so no member can lead out of `folder`.

    Raises:
        ValueError: the archive has no scans, or two of the same name.
    """
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            name = PurePosixPath(member.filename.replace("\\", "/")).name
            if member.is_dir() or name.startswith(".") or not name.endswith((".nii", ".nii.gz")):
                continue
            if (folder / name).exists():
                raise ValueError(f"has two files named {name}")
            with content.open(member) as source, (folder / name).open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    count = len(list(folder.iterdir()))
    if not count:
        raise ValueError("has no .nii or .nii.gz files")
    return count


if __name__ == "__main__":
    archive_file, target_folder = map(Path, sys.argv[1:])
    try:
        print(f"{archive_file.name}: {unzip_scans(archive_file, target_folder)} files")
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        print(f"Error: {archive_file}: {error}", file=sys.stderr)
        sys.exit(2)

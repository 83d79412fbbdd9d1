"""One process at a time writes into a folder; the others are told which process it is."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from utils.errors import UserError
from utils.log import logger

_NAME = ".lock"


def lock_folder(folder: Path, key: str) -> TextIO:
    """Keep other processes from locking `folder` until the returned file is closed.

    The system lets go of the lock when the process ends, however it ends, so that none is left
    behind. Where the disk knows no locks (some network file systems), there is none.

    Args:
        folder: is made if it is not there yet.
        key: of the configuration, for the message.

    Raises:
        UserError: another process has the lock; names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / _NAME).open("a+", encoding="utf-8")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        owner = file.read().strip()
        file.close()
        raise UserError(
            f"{key}: another run (process {owner or 'unknown'}) is writing into {folder}; wait for "
            "it, or give this one a folder of its own"
        ) from None
    except OSError as error:
        logger.warning(f"{folder}: cannot be locked against other runs ({error.strerror})")
        return file
    with suppress(OSError):  # a full disk keeps the number out of the message only
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
    return file

"""The CSV log of a run that goes on."""

import csv
import io
from pathlib import Path

from utils.paths import write_bytes


def keep_epochs(path: Path, epochs: int) -> None:
    """Cut torn rows and those of epochs from number `epochs` on off the end of a Keras CSV log.

    A run that was killed may have logged more than its state holds; the epochs come again.
    """
    if not path.is_file():
        return
    header, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines()) or [[]]
    while rows and not (len(rows[-1]) == len(header) and int(rows[-1][0]) < epochs):
        rows.pop()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_bytes(path, text.getvalue().encode())

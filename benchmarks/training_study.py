"""What a training study has measured: its cells, files, table and chart."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.training_cell import MEASURED
from utils.line_chart import Panel, line_chart
from utils.log import logger, print_table
from utils.paths import read_json, write_csv, write_json

NAME = "benchmark_training"
FAILED = "failed"
_COLUMNS = ("batch", "precision", "XLA", "ms per step", "images/s", "speed-up")
_GPU_COLUMN = "GPU use, %"


class CellKey(NamedTuple):
    """Batch size, name of the data type policy (float32, mixed_float16, …), compiled by XLA."""

    batch_size: int
    precision: str
    xla: bool


@dataclass
class TrainingStudy:
    """Results by cell, kept in three files that are written anew after every cell.

    Attributes:
        folder: where benchmark_training.json, .csv and .png lie.
        settings: what the times depend on besides the cell.
        cells: the result of each, with a `status`.
    """

    folder: Path
    settings: dict[str, Any]
    cells: dict[CellKey, dict[str, Any]] = field(default_factory=dict)

    def read(self) -> None:
        """Take over what an earlier run has measured with the same settings.

        Cells that failed are left out, so that they are measured again.
        """
        path = self.folder / f"{NAME}.json"
        if not path.is_file():
            return
        content = read_json(path, "The training study")
        if content.get("settings") != self.settings:
            logger.info(f"{path} has other settings and is replaced")
            return
        for row in content["cells"]:
            key = CellKey(*(row[name] for name in CellKey._fields))
            if row["status"] != FAILED:
                self.cells[key] = {k: v for k, v in row.items() if k not in CellKey._fields}

    def rows(self) -> Iterator[dict[str, Any]]:
        """The cells in order, with the speed-up against float32 without XLA at the same batch."""
        for key, cell in sorted(self.cells.items()):
            reference = self.cells.get(CellKey(key.batch_size, "float32", False), {})
            speeds = cell.get("images_per_second"), reference.get("images_per_second")
            yield {
                **key._asdict(),
                "status": cell["status"],
                "step_msec": cell.get("step_msec"),
                "images_per_second": cell.get("images_per_second"),
                "speed_up": speeds[0] / speeds[1] if all(speeds) else None,
                "gpu_utilisation": cell.get("gpu_utilisation"),
                "hardware": cell.get("hardware"),
                "error": cell.get("error"),
            }

    def write(self, facts: dict[str, Any]) -> None:
        """Write all files; `facts` of the run are added to the JSON."""
        rows = list(self.rows())
        write_json(
            self.folder / f"{NAME}.json", {"settings": self.settings, "cells": rows, **facts}
        )
        write_csv(self.folder / f"{NAME}.csv", rows)
        self._draw(rows)

    def print(self) -> None:
        """Print the table, then the errors of cells that failed."""
        rows = list(self.rows())
        with_gpu = any(row["gpu_utilisation"] is not None for row in rows)
        hardware = sorted({row["hardware"] for row in rows if row["hardware"]})
        print_table(
            f"Training steps on {' and '.join(hardware) or 'this machine'}",
            [*_COLUMNS, *([_GPU_COLUMN] if with_gpu else [])],
            [_table_row(row, with_gpu) for row in rows],
        )
        for key, cell in sorted(self.cells.items()):
            if cell["status"] == FAILED:
                logger.warning(f"{_cell_name(key)}: {cell['error']}")

    def _draw(self, rows: list[dict[str, Any]]) -> None:
        batches = sorted({row["batch_size"] for row in rows})
        lines: dict[str, dict[int, float | None]] = {}
        for row in rows:
            name = row["precision"] + (" + XLA" if row["xla"] else "")
            lines.setdefault(name, {})[row["batch_size"]] = row["images_per_second"]
        speeds = {name: [line.get(batch) for batch in batches] for name, line in lines.items()}
        panel = Panel("Training, images per second", speeds)
        line_chart(self.folder / f"{NAME}.png", [panel], "batch size", batches)


def _table_row(row: dict[str, Any], with_gpu: bool) -> list[object]:
    name = [row["batch_size"], row["precision"], "on" if row["xla"] else "off"]
    if row["status"] != MEASURED:
        return [*name, row["status"], *[""] * (2 + with_gpu)]
    speed_up, usage = row["speed_up"], row["gpu_utilisation"]
    return [
        *name,
        f"{row['step_msec']:.1f}",
        f"{row['images_per_second']:.2f}",
        None if speed_up is None else f"{speed_up:.2f}",
        *([None if usage is None else f"{usage:.0f}"] if with_gpu else []),
    ]


def _cell_name(key: CellKey) -> str:
    return f"batch {key.batch_size}, {key.precision}, XLA {'on' if key.xla else 'off'}"

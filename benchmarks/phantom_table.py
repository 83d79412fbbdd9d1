"""The results of the phantom study as a Markdown table: `python -m benchmarks.phantom_table`."""

import csv
import statistics
from itertools import groupby
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "phantom_results.csv"
COLUMNS = (
    "variant",
    "loss",
    "seed",
    "dice_per_case_mean",
    "dice_per_case_sd",
    "dice_global",
    "false_positive_voxels_empty_slices",
    "epochs",
    "seconds",
    "parameters",
    "settings",
)
# Column of the results -> heading, decimals
_SHOWN = {
    "dice_per_case_mean": ("Dice per case", 4),
    "dice_per_case_sd": ("sd over cases", 4),
    "dice_global": ("Dice global", 4),
    "false_positive_voxels_empty_slices": ("false-positive voxels on liver-free slices", 0),
}


def read_rows(path: Path = RESULTS) -> list[dict[str, str]]:
    """The rows of the results, one per run, in their order."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def study_table(rows: list[dict[str, str]]) -> str:
    """A Markdown table with one row per loss and variant: mean over the seeds ± their sd.

    Args:
        rows: of the results, the seeds of a pair one after the other.
    """
    headings = ("variant", "loss", "seeds", *(heading for heading, _ in _SHOWN.values()))
    lines = [headings, ["---", "---", *["---:"] * (len(headings) - 2)]]
    for pair, runs in groupby(rows, key=lambda row: (row["variant"], row["loss"])):
        runs = list(runs)
        cells = (
            _mean_and_sd([float(run[column]) for run in runs], decimals)
            for column, (_, decimals) in _SHOWN.items()
        )
        lines.append([*(f"`{name}`" for name in pair), str(len(runs)), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mean_and_sd(values: list[float], decimals: int) -> str:
    mean = f"{statistics.mean(values):.{decimals}f}"
    return f"{mean} ± {statistics.stdev(values):.{decimals}f}" if len(values) > 1 else mean


if __name__ == "__main__":
    print(study_table(read_rows()))

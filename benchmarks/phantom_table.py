"""The results of the phantom study as Markdown tables: `python -m benchmarks.phantom_table`."""

import csv
import math
import statistics
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from utils.markdown import markdown_table

BASE = "unet3plus"
RESULTS = Path(__file__).resolve().parent / "phantom_results.csv"
_FALSE_POSITIVES = "false_positive_voxels_empty_slices"
COLUMNS = (
    "variant",
    "loss",
    "seed",
    "dice_per_case_mean",
    "dice_per_case_sd",
    "dice_global",
    _FALSE_POSITIVES,
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
    _FALSE_POSITIVES: ("false-positive voxels on liver-free slices", 0),
}


def read_rows(path: Path = RESULTS) -> list[dict[str, str]]:
    """The rows of the results, one per run, in their order."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def study_tables(rows: list[dict[str, str]]) -> str:
    """What every variant gains over all its runs, then every pair of variant and loss by itself."""
    return f"{variant_table(rows)}\n\n{pair_table(rows)}"


def variant_table(rows: list[dict[str, str]]) -> str:
    """One row per variant, over all losses and seeds.

    The gain is the mean over pairs of runs with the same loss and seed ± its standard error; false
    positives are summed.
    """
    headings = [_SHOWN[column][0] for column in ("dice_per_case_mean", _FALSE_POSITIVES)]
    headings = ["variant", "runs", headings[0], f"gain over `{BASE}`", headings[1]]
    lines = []
    for (variant,), runs in _groups(rows, "variant"):
        gains = _gains(runs, rows)
        gain = _mean_and_spread(gains, "+.4f", over=math.sqrt(len(gains)))
        dice = f"{statistics.mean(map(_dice, runs)):.4f}"
        false_positives = sum(int(run[_FALSE_POSITIVES]) for run in runs)
        lines.append([f"`{variant}`", len(runs), dice, gain, false_positives])
    return markdown_table(headings, lines, texts=1)


def pair_table(rows: list[dict[str, str]]) -> str:
    """One row per variant and loss: mean over the seeds ± their standard deviation.

    The column "against base" compares the Dice per case of runs with the same loss and seed.
    """
    headings = [heading for heading, _ in _SHOWN.values()]
    headings = ["variant", "loss", "seeds", headings[0], "against base", *headings[1:]]
    lines = []
    for pair, runs in _groups(rows, "variant", "loss"):
        dice, *cells = (
            _mean_and_spread([float(run[column]) for run in runs], f".{decimals}f")
            for column, (_, decimals) in _SHOWN.items()
        )
        gain = _mean_and_spread(_gains(runs, rows), "+.4f")
        lines.append([*(f"`{name}`" for name in pair), len(runs), dice, gain, *cells])
    return markdown_table(headings, lines, texts=2)


def _groups(
    rows: list[dict[str, str]], *columns: str
) -> Iterator[tuple[tuple[str, ...], list[dict[str, str]]]]:
    """Rows with the same values in these columns, which follow each other."""
    for values, group in groupby(rows, key=lambda row: tuple(row[column] for column in columns)):
        yield values, list(group)


def _gains(runs: list[dict[str, str]], rows: list[dict[str, str]]) -> list[float]:
    """Dice per case above the base variant's; none for the base itself."""
    base = {(row["loss"], row["seed"]): _dice(row) for row in rows if row["variant"] == BASE}
    pairs = [(run, base.get((run["loss"], run["seed"]))) for run in runs if run["variant"] != BASE]
    return [_dice(run) - dice for run, dice in pairs if dice is not None]


def _dice(row: dict[str, str]) -> float:
    return float(row["dice_per_case_mean"])


def _mean_and_spread(values: list[float], form: str, over: float = 1) -> str:
    """Mean ± standard deviation divided by `over`; the mean alone of one value, "" of none."""
    if not values:
        return ""
    mean = f"{statistics.mean(values):{form}}"
    return f"{mean} ± {statistics.stdev(values) / over:{form.strip('+')}}" if values[1:] else mean


if __name__ == "__main__":
    print(study_tables(read_rows()))

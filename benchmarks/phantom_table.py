"""The results of the phantom study as a Markdown table: `python -m benchmarks.phantom_table`."""

import csv
import statistics
from itertools import groupby
from pathlib import Path

BASE = "unet3plus"
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

    The column "against base" compares the Dice per case of runs with the same loss and seed.

    Args:
        rows: of the results, the seeds of a pair one after the other.
    """
    headings = [heading for heading, _ in _SHOWN.values()]
    headings = ["variant", "loss", "seeds", headings[0], "against base", *headings[1:]]
    lines = [headings, ["---", "---", *["---:"] * (len(headings) - 2)]]
    base = {(row["loss"], row["seed"]): _dice(row) for row in rows if row["variant"] == BASE}
    for (variant, loss), runs in groupby(rows, key=lambda row: (row["variant"], row["loss"])):
        runs = list(runs)
        dice, *cells = (
            _mean_and_sd([float(run[column]) for run in runs], f".{decimals}f")
            for column, (_, decimals) in _SHOWN.items()
        )
        gains = [
            _dice(run) - base[loss, run["seed"]] for run in runs if (loss, run["seed"]) in base
        ]
        gain = _mean_and_sd(gains, "+.4f") if gains and variant != BASE else ""
        lines.append([f"`{variant}`", f"`{loss}`", str(len(runs)), dice, gain, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _dice(row: dict[str, str]) -> float:
    return float(row["dice_per_case_mean"])


def _mean_and_sd(values: list[float], form: str) -> str:
    mean = f"{statistics.mean(values):{form}}"
    return f"{mean} ± {statistics.stdev(values):{form.strip('+')}}" if len(values) > 1 else mean


if __name__ == "__main__":
    print(study_table(read_rows()))

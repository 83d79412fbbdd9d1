"""Training runs side by side: `python -m utils.results_table results/a results/b/train.json …`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from utils.errors import EXIT_USER_ERROR, UserError
from utils.markdown import markdown_table
from utils.paths import read_json

COLUMNS = ("GPU Count", "Generator", "XLA", "AMP", "Training Time (HH:MM:SS)", "Latency (ms)",
           "Throughput (slices/s)", "Speed Up", "Dice")  # fmt: skip
MISSING = "n/a"


def results_table(paths: list[Path]) -> str:
    """A Markdown table with one row per training run, in the order given.

    The speed-up is the throughput relative to the first run that has one. Dice is that of the
    evaluation (summary.json beside the result) where there is one, else the best in training.

    Args:
        paths: of train.json, or of the folders that hold one.

    Raises:
        UserError: a file is missing or is no result of a training.
    """
    runs = [_read(path / "train.json" if path.is_dir() else path) for path in paths]
    speeds = [run["timing"]["throughput_samples_per_sec"] for run in runs]
    reference = next((speed for speed in speeds if speed), None)
    return markdown_table(COLUMNS, [_row(run, reference) for run in runs], texts=2)


def _read(path: Path) -> dict[str, Any]:
    run = read_json(path, "The result of a training")
    if not isinstance(run, dict) or "timing" not in run:
        raise UserError(f"{path}: found no 'timing'; expected the train.json of a training")
    summary = path.with_name("summary.json")
    if summary.is_file():
        run["dice"] = read_json(summary, "The summary of an evaluation")["slices"][
            "dice_pooled_mean"
        ]
    else:
        run["dice"] = run["best"]["val_dice_coef"]
    return run


def _row(run: dict[str, Any], reference: float | None) -> list[str]:
    timing = run["timing"]
    on_gpu = run["devices"][0].startswith("GPU")
    minutes, seconds = divmod(round(timing["total_seconds"]), 60)
    latency, speed = timing["latency_msec"], timing["throughput_samples_per_sec"]
    return [
        str(run["replicas"]) if on_gpu else f"0 (CPU x {run['replicas']})",
        run["generator"].removesuffix("_GENERATOR"),
        "Yes" if run["xla"] else "No",
        "Yes" if run["amp"] else "No",
        f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}",
        f"{latency:.2f}" if latency else MISSING,
        f"{speed:.2f}" if speed else MISSING,
        f"{speed / reference:.2f}" if speed else MISSING,
        f"{run['dice']:.4f}",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m utils.results_table")
    parser.add_argument("results", nargs="+", type=Path, help="train.json, or a folder with one")
    try:
        print(results_table(parser.parse_args().results))
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)

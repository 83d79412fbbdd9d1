"""Score trained weights on the validation slices: `python evaluate.py`."""

import csv
import io
from pathlib import Path

from omegaconf import DictConfig

from data_generators.data_generator import DataSplit, get_data_generator
from models.inference import most_likely_class
from models.model import inference_view, model_identity, prepare_model, weights_path
from models.weights import load_weights
from utils.cli import run_command
from utils.errors import UserError
from utils.images import case_and_slice
from utils.log import console, print_table, progress
from utils.paths import write_bytes
from utils.results import results_folder, run_facts, write_result
from utils.runtime import Runtime, setup_runtime
from utils.slice_scores import (
    SliceCounts,
    count_overlap,
    dice_per_case,
    join,
    mean_or_none,
    mean_slice_dice,
    pooled_dice,
    share_of_empty_slices,
)


def evaluate(cfg: DictConfig) -> dict:
    """Load the weights and score every validation slice once; returns what is written as JSON.

    Raises:
        UserError: no masks, no weights, or weights of another network.
    """
    if cfg.DATASET.VAL.MASK_PATH is None:
        raise UserError("DATASET.VAL.MASK_PATH: found null; evaluation compares with masks")
    runtime = setup_runtime(cfg)
    split = get_data_generator(cfg, "VAL", runtime)
    counts = _count(cfg, runtime, split)

    pooled, cases = pooled_dice(counts), dice_per_case(counts)
    scores = {
        "dice_pooled": pooled,
        "dice_pooled_mean": mean_or_none(pooled),
        "dice_per_case_mean": [mean_or_none(list(v)) for v in zip(*cases.values(), strict=True)],
        "mean_slice_dice": mean_slice_dice(counts),
        "mean_slice_dice_of_empty_prediction": share_of_empty_slices(counts),
        "slices": len(counts.cases),
        "cases": len(cases),
    }
    write_result(cfg, "evaluation.json", {**run_facts(cfg, runtime), **scores, "per_case": cases})
    _write_cases(results_folder(cfg) / "evaluation_cases.csv", cases)
    _print_scores(scores, cases)
    return scores


def _count(cfg: DictConfig, runtime: Runtime, split: DataSplit) -> SliceCounts:
    with runtime.strategy.scope():
        model = prepare_model(cfg)
        load_weights(model, weights_path(cfg), model_identity(cfg))
        view = inference_view(model, runtime.jit_compile)
    parts = []
    batches = progress(split.dataset, "Evaluating", split.steps, "batch", cfg.VERBOSE)
    for index, (images, masks) in enumerate(batches):
        prediction = most_likely_class(view.predict_on_batch(images))
        names = [case_and_slice(pair.image)[0] for pair in split.dataset.batch_pairs(index)]
        parts.append(count_overlap(names, masks, prediction, cfg.OUTPUT.CLASSES))
    return join(parts)


def _write_cases(path: Path, cases: dict[str, list[float | None]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    classes = len(next(iter(cases.values())))
    writer.writerow(["case", *[f"dice_class_{number}" for number in range(1, classes + 1)]])
    writer.writerows([case, *values] for case, values in cases.items())
    write_bytes(path, text.getvalue().encode())


def _print_scores(scores: dict, cases: dict[str, list[float | None]]) -> None:
    columns = ["case", *[f"class {i}" for i in range(1, len(scores["dice_pooled"]) + 1)]]
    print_table("Dice per case", columns, [[case, *values] for case, values in cases.items()])
    print_table(
        f"Dice over {scores['cases']} cases, {scores['slices']} slices",
        ["", *columns[1:]],
        [
            ["mean over cases", *scores["dice_per_case_mean"]],
            ["all slices pooled", *scores["dice_pooled"]],
        ],
    )
    console.print("A class that occurs in neither truth nor prediction (n/a) is left out of means.")
    console.print(
        f"Mean slice Dice (the predecessor's score): {scores['mean_slice_dice']:.4f}; an always "
        f"empty prediction gets {scores['mean_slice_dice_of_empty_prediction']:.4f}"
    )
    pooled = scores["dice_pooled_mean"]
    print(f"Validation dice coefficient: {'n/a' if pooled is None else f'{pooled:.5f}'}")


if __name__ == "__main__":
    run_command(evaluate)

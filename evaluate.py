"""Score trained weights on cases they were not trained on: `python evaluate.py`."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from data_generators.data_generator import DataSplit, get_data_generator
from data_preparation.case_records import cases_file, read_cases
from data_preparation.native_grid import on_common_grid
from models.inference import most_likely_class
from models.model import inference_view, model_identity, prepare_model, weights_path
from models.weights import load_weights, require_weights
from utils.case_split import HELD_OUT, VAL
from utils.cli import run_command
from utils.contour_picture import contour_picture, widest_slice
from utils.errors import UserError
from utils.evaluation_output import print_scores, write_scores
from utils.exhaustion import explain_exhaustion
from utils.images import case_and_slice
from utils.log import logger, progress
from utils.paths import read_path_list
from utils.report import ReportPicture
from utils.results import results_folder, run_facts
from utils.runtime import Runtime, setup_runtime
from utils.scan_metrics import CaseScores, compare_masks, largest_component
from utils.slice_files import SlicePair, cases_of, source_section
from utils.slice_scores import SliceCounts, count_overlap, join, summarise_slices


class CasePrediction(NamedTuple):
    """One case on the network's grid, arrays of shape (slices, height, width), uint8.

    Attributes:
        case: its id.
        grey: the middle channel of the images.
        truth: class ids.
        prediction: class ids.
    """

    case: str
    grey: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray


class CaseResult(NamedTuple):
    """What is kept of a case; `scores` and `grid` are None where it is not known as a scan."""

    case: str
    counts: SliceCounts
    picture: np.ndarray
    scores: CaseScores | None
    grid: str | None


@explain_exhaustion
def evaluate(cfg: DictConfig) -> dict[str, Any]:
    """Load the weights and score every slice and scan of `EVALUATION.SPLIT` once.

    Slices that were prepared from scans (cases.json lies beside them) are put together again and
    compared on the scan's own grid. Writes summary.json, cases.csv and report.html; returns what
    summary.json holds.

    Raises:
        UserError: no masks, no weights, weights of another network, weights that were trained on
            one of the cases, or a case that cases.json does not have.
    """
    section = source_section(_split(cfg))
    if cfg.DATASET[section].MASK_PATH is None:
        raise UserError(f"DATASET.{section}.MASK_PATH: found null; evaluation compares with masks")
    require_weights(weights_path(cfg))
    folder = results_folder(cfg)
    runtime = setup_runtime(cfg)
    split = get_data_generator(cfg, _split(cfg), runtime)
    records = _case_records(cfg, split.pairs)

    started = time.perf_counter()
    scoring_seconds = 0.0
    results = []
    for case in _predict_cases(cfg, runtime, split):
        case_started = time.perf_counter()
        results.append(_score(cfg, case, records.get(case.case)))
        scoring_seconds += time.perf_counter() - case_started
    network_seconds = time.perf_counter() - started - scoring_seconds

    summary = {
        **run_facts(cfg, runtime),
        "split": _split(cfg),
        "weights": str(weights_path(cfg)),
        "seconds": {"network": network_seconds, "scoring": scoring_seconds},
        "slices": summarise_slices(join([result.counts for result in results])),
    }
    pictures = [ReportPicture(f"case {result.case}", result.picture) for result in results]
    scans = {result.case: result.scores for result in results if result.scores is not None}
    grids = sorted({result.grid for result in results if result.grid is not None})
    write_scores(folder, summary, scans, pictures, cfg.EVALUATION.CONVENTION, " and ".join(grids))
    print_scores(summary, folder)
    return summary


def _split(cfg: DictConfig) -> str:
    return HELD_OUT if cfg.EVALUATION.SPLIT == "held_out" else VAL


def _case_records(cfg: DictConfig, pairs: list[SlicePair]) -> dict[str, dict[str, Any]]:
    """The records of all cases, or nothing where the slices are not those of prepared scans."""
    path = cases_file(pairs[0].image.parent)
    section = source_section(_split(cfg))
    key = f"DATASET.{section}.IMAGES_PATH"
    images = read_path_list(cfg.DATASET[section].IMAGES_PATH, cfg.WORK_DIR, key)
    if not isinstance(images, str) or not path.is_file():
        logger.info("No cases.json belongs to these slices: they are not scored as scans")
        return {}
    records = read_cases(path)
    found = Counter(case_and_slice(pair.image)[0] for pair in pairs)
    problems = [
        f"case {case}: {count} slices, but {path.name} has "
        + (f"{records[case]['slices']}" if case in records else "no such case")
        for case, count in found.items()
        if case not in records or records[case]["slices"] != count
    ]
    if problems:
        title = (
            f"The slices do not fit {path}; run 'python data_preparation/preprocess_data.py' "
            "again, or move the file away to score slices only"
        )
        raise UserError.listing(title, problems)
    return records


def _predict_cases(cfg: DictConfig, runtime: Runtime, split: DataSplit) -> Iterator[CasePrediction]:
    """The cases one after the other, each as soon as its last slice is predicted."""
    model = prepare_model(cfg)
    card = load_weights(model, weights_path(cfg), model_identity(cfg))
    _refuse_training_cases(cfg, card, cases_of(split.pairs))
    view = inference_view(model, runtime.jit_compile)
    remaining = Counter(case_and_slice(pair.image)[0] for pair in split.pairs)
    open_cases: dict[str, list[tuple]] = {}
    batches = progress(split.dataset, "Evaluating", split.steps, "batch", cfg.VERBOSE)
    for index, (images, masks) in enumerate(batches):
        middle = images[..., images.shape[-1] // 2]
        grey = np.rint(middle * 255).astype(np.uint8)
        predictions = most_likely_class(view.predict_on_batch(images))
        pairs = split.dataset.batch_pairs(index)
        for pair, *slice_arrays in zip(pairs, grey, masks, predictions, strict=True):
            case, number = case_and_slice(pair.image)
            open_cases.setdefault(case, []).append((number, *slice_arrays))
            remaining[case] -= 1
            if remaining[case] == 0:
                in_order = sorted(open_cases.pop(case), key=lambda item: item[0])
                _, *stacks = (np.stack(arrays) for arrays in zip(*in_order, strict=True))
                yield CasePrediction(case, *stacks)


def _refuse_training_cases(cfg: DictConfig, card: dict[str, Any], cases: list[str]) -> None:
    known = set(card.get("training_cases", ()))
    if shared := [case for case in cases if case in known]:
        found = f"{weights_path(cfg)} was trained on cases that are to be scored: "
        found += ", ".join(shared)
        if not cfg.DATASET.ALLOW_SHARED_CASES:
            raise UserError(
                f"{found}; set DATASET.SPLIT as it was in training; "
                "DATASET.ALLOW_SHARED_CASES=True permits it"
            )
        logger.warning(found)


def _score(cfg: DictConfig, case: CasePrediction, record: dict[str, Any] | None) -> CaseResult:
    prediction = case.prediction
    if cfg.EVALUATION.KEEP_LARGEST_COMPONENT:
        prediction = largest_component(prediction)
    names = [case.case] * len(prediction)
    counts = count_overlap(names, case.truth, prediction, cfg.OUTPUT.CLASSES)
    widest = widest_slice(case.truth, prediction, axis=0)
    picture = contour_picture(case.grey[widest], case.truth[widest], prediction[widest])
    if record is None:
        return CaseResult(case.case, counts, picture, None, None)
    masks = on_common_grid(record, case.truth, prediction)
    scores = compare_masks(
        masks.truth,
        masks.prediction,
        masks.spacing,
        str(cfg.EVALUATION.CONVENTION),
        with_tumour=cfg.OUTPUT.CLASSES > 2,
    )
    return CaseResult(case.case, counts, picture, scores, masks.grid)


if __name__ == "__main__":
    run_command(evaluate)

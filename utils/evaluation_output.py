"""What an evaluation leaves: tables on the screen, summary.json, cases.csv and report.html."""

from pathlib import Path
from typing import Any

from utils.log import console, print_table
from utils.paths import write_csv, write_json
from utils.report import ReportPicture, representative_cases, write_report
from utils.scan_metrics import CaseScores, Convention
from utils.score_summary import METRICS, STRUCTURES, case_row, summarise

SUMMARY, CASES, REPORT = "summary.json", "cases.csv", "report.html"
_CASE_COLUMNS = ("dice", "assd", "hd95", "truth_ml", "prediction_ml")


def write_scores(
    folder: Path,
    summary: dict[str, Any],
    scans: dict[str, CaseScores],
    pictures: list[ReportPicture],
    convention: Convention,
    grid: str,
) -> None:
    """Write the three files into `folder` and add the scores of the scans to `summary`.

    Args:
        folder: where they go.
        summary: facts of the run and its "slices" scores.
        scans: scores by case id, empty where the slices are not those of scans.
        pictures: one per case of the slices, in their order.
        convention: the one `scans` were made with.
        grid: on which they were compared.
    """
    per_case = summary["slices"]["per_case"]
    rows = [
        {
            "case": case,
            **{f"slices_dice_class_{i}": value for i, value in enumerate(values, start=1)},
            **(case_row(case, scans[case]) if case in scans else {}),
        }
        for case, values in per_case.items()
    ]
    write_csv(folder / CASES, rows)
    (folder / REPORT).unlink(missing_ok=True)
    summary["scans"] = None
    if scans:
        scores = summarise(list(scans.values()), convention)
        summary["scans"] = {**scores, "grid": grid, "per_case": rows}
        facts = {"grid": grid, "weights": summary["weights"], "command": summary["command"]}
        chosen = representative_cases(rows)
        captioned = [
            ReportPicture(f"{rank} {pictures[index].caption}", pictures[index].image)
            for rank, index in chosen.items()
        ]
        write_report(folder / REPORT, {**scores, **facts}, rows, captioned)
    write_json(folder / SUMMARY, summary)


def print_scores(summary: dict[str, Any], folder: Path) -> None:
    """Print the scores; the last line is the Dice of all slices pooled, as in training."""
    if summary["scans"] is not None:
        _print_scans(summary["scans"])
    _print_slices(summary["slices"])
    seconds = summary["seconds"]
    console.print(
        f"Time: {seconds['network']:.1f} sec for the network, {seconds['scoring']:.1f} for scoring"
    )
    written = [name for name in (SUMMARY, CASES, REPORT) if (folder / name).is_file()]
    console.print(f"Results: {', '.join(str(folder / name) for name in written)}")
    pooled = summary["slices"]["dice_pooled_mean"]
    print(f"Validation dice coefficient: {'n/a' if pooled is None else f'{pooled:.5f}'}")


def _print_scans(scans: dict[str, Any]) -> None:
    structures = [structure for structure in STRUCTURES if structure in scans]
    columns = [(s, name) for s in structures for name in _CASE_COLUMNS]
    print_table(
        f"Scans, on the {scans['grid']} grid",
        ["case", *[f"{s} {METRICS[name][0]}" for s, name in columns]],
        [
            [row["case"], *[_rounded(row[f"{s}_{name}"], name) for s, name in columns]]
            for row in scans["per_case"]
        ],
    )
    rows: list[list[object]] = []
    for structure in structures:
        scores = scans[structure]
        rows.append([f"{structure} Dice global", _rounded(scores["dice_global"], "dice")])
        rows += [_statistics_row(structure, name, scores[name]) for name in METRICS]
    print_table(
        f"All {scans['cases']} scans",
        ["", "mean", "sd", "95 % interval of the mean", "cases"],
        rows,
    )
    if "lesions" in scans:
        print_table(
            "Lesions",
            ["detected if IoU", "precision", "recall", "true pos.", "false pos.", "false neg."],
            [
                [name.replace("iou_above_", "> "), d["precision"], d["recall"],
                 d["true_positives"], d["false_positives"], d["false_negatives"]]
                for name, d in scans["lesions"].items()
            ],
        )  # fmt: skip
        burden = scans["tumour_burden"]["rmse"]
        console.print(f"Tumour burden RMSE: {'n/a' if burden is None else f'{burden:.4f}'}")
    console.print(f"Rule ({scans['convention']}): {scans['rule']}")


def _statistics_row(structure: str, name: str, values: dict[str, Any]) -> list[object]:
    interval = values["interval"]
    return [
        f"{structure} {METRICS[name][0]}",
        _rounded(values["mean"], name),
        _rounded(values["sd"], name),
        interval and f"{_rounded(interval[0], name)} to {_rounded(interval[1], name)}",
        f"{values['cases']} of {values['cases'] + values['excluded']}",
    ]


def _rounded(value: float | None, name: str) -> str | None:
    return None if value is None else f"{value:.{METRICS[name][1]}f}"


def _print_slices(slices: dict[str, Any]) -> None:
    classes = range(1, len(slices["dice_pooled"]) + 1)
    print_table(
        f"Slices on the network's grid: {slices['slices']} slices of {slices['cases']} cases",
        ["Dice", *[f"class {number}" for number in classes]],
        [
            ["mean over cases", *slices["dice_per_case_mean"]],
            ["all slices pooled", *slices["dice_pooled"]],
        ],
    )
    console.print(
        f"Mean slice Dice (the predecessor's score): {slices['mean_slice_dice']:.4f}; an always "
        f"empty prediction gets {slices['mean_slice_dice_of_empty_prediction']:.4f}"
    )
    console.print(
        "False-positive voxels on slices without foreground: "
        f"{slices['false_positive_voxels_empty_slices']}"
    )
    console.print("n/a: a class in neither truth nor prediction; it is left out of means.")

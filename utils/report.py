"""The evaluation as one HTML page that needs no other file and no network."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np

from utils.images import encode_png
from utils.paths import write_bytes
from utils.score_summary import METRICS, STRUCTURES

_TEMPLATE = Path(__file__).with_name("report_template.html")
_HEADINGS = {"rmse": "RMSE", "excluded": "No score"}
_BINS = 20
_PLOT_WIDTH, _PLOT_HEIGHT, _MARGIN = 640, 180, 36  # px


class ReportPicture(NamedTuple):
    """A picture, uint8 of shape (height, width) or (height, width, 3) RGB, and what it shows."""

    caption: str
    image: np.ndarray


def write_report(
    path: Path,
    summary: dict[str, Any],
    cases: Sequence[dict[str, Any]],
    pictures: Sequence[ReportPicture] = (),
    title: str = "UNet 3+ evaluation",
) -> None:
    """Write the page: scores of the data set, histogram, pictures and a sortable table of cases.

    Args:
        path: the HTML file, written in one step.
        summary: what `score_summary.summarise` returns. Further plain values at its top level
            (the model, the grid compared on …) are listed at the head of the page.
        cases: one row per case as `score_summary.case_row` returns it.
        pictures: shown in this order.
    """
    page = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(title),
        facts=_facts(summary),
        headlines=_headlines(summary),
        rule=escape(summary["rule"]),
        scores=_score_tables(summary),
        histogram=_histogram([row["liver_dice"] for row in cases]),
        pictures="".join(_figure(picture) for picture in pictures),
        cases=_case_table(cases),
    )
    write_bytes(path, page.encode())


def representative_cases(
    cases: Sequence[dict[str, Any]], key: str = "liver_dice"
) -> dict[str, int]:
    """Positions of the "worst", "median" and "best" row by `key`, none named twice.

    Rows without a score are passed over. Of two rows there is no median, of one only a "worst".
    """
    scored = sorted(
        (index for index, row in enumerate(cases) if row[key] is not None),
        key=lambda index: cases[index][key],
    )
    chosen: dict[str, int] = {}
    if scored:
        for name, rank in (("worst", 0), ("median", (len(scored) - 1) // 2), ("best", -1)):
            if scored[rank] not in chosen.values():
                chosen[name] = scored[rank]
    return chosen


def _facts(summary: dict[str, Any]) -> str:
    plain = {
        key: value
        for key, value in summary.items()
        if key != "rule" and not isinstance(value, dict | list)
    }
    return "".join(
        f"<div><dt>{escape(_words(key))}:</dt> <dd>{_number(value)}</dd></div>"
        for key, value in plain.items()
    )


def _headlines(summary: dict[str, Any]) -> str:
    tiles = []
    for structure in _scored(summary):
        name, dice = structure.capitalize(), summary[structure]["dice"]
        note = f"{dice['cases']} cases"
        if dice["interval"]:
            low, high = dice["interval"]
            note = f"SD {dice['sd']:.4f} · 95 % interval {low:.4f} to {high:.4f} · {note}"
        tiles += [
            (f"{name} Dice per case", dice["mean"], note),
            (f"{name} Dice global", summary[structure]["dice_global"], "all voxels together"),
        ]
    return "".join(
        f"<div><span>{escape(label)}</span><strong>{_number(value)}</strong>"
        f"<small>{escape(note)}</small></div>"
        for label, value, note in tiles
    )


def _score_tables(summary: dict[str, Any]) -> str:
    columns = ("Mean", "SD", "95 % interval", "Cases", _words("excluded"))
    tables = []
    for structure in _scored(summary):
        rows = []
        for name, (heading, decimals) in METRICS.items():
            values = summary[structure][name]
            low, high = values["interval"] or (None, None)
            interval = f"{_number(low, decimals)} to {_number(high, decimals)}"
            cells = [_number(values[key], decimals) for key in ("mean", "sd")]
            cells += [interval if values["interval"] else "n/a"]
            cells += [_number(values[key]) for key in ("cases", "excluded")]
            rows.append((heading, cells))
        tables.append(_table(structure.capitalize(), columns, rows))
    if "lesions" in summary:
        counts = list(summary["lesions"].values())
        tables.append(
            _table(
                "Lesion detection",
                [_words(key) for key in counts[0]],
                [
                    (name.replace("iou_above_", "IoU > "), map(_number, values.values()))
                    for name, values in summary["lesions"].items()
                ],
            )
        )
        burden = summary["tumour_burden"]
        tables.append(
            _table(
                "Tumour burden",
                [_words(key) for key in burden],
                [("Truth minus prediction", map(_number, burden.values()))],
            )
        )
    return "".join(tables)


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, Any]]) -> str:
    head = "".join(f"<th scope=col>{escape(column)}</th>" for column in ("", *columns))
    body = "".join(
        f"<tr><th scope=row>{escape(name)}</th>"
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
        for name, cells in rows
    )
    return (
        f"<div class=scroll><table><caption>{escape(title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _case_table(cases: Sequence[dict[str, Any]]) -> str:
    keys = list(dict.fromkeys(key for row in cases for key in row))
    columns = {key: _column(key) for key in keys}
    head = "".join(
        f"<th scope=col><button type=button>{escape(heading)}</button></th>"
        for heading, _ in columns.values()
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-value="{escape(str(row.get(key)))}">{_number(row.get(key), decimals)}</td>'
            for key, (_, decimals) in columns.items()
        )
        + "</tr>"
        for row in cases
    )
    return f"<table id=cases><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _column(key: str) -> tuple[str, int]:
    structure, _, metric = key.partition("_")
    if structure in STRUCTURES and metric in METRICS:
        heading, decimals = METRICS[metric]
        return f"{structure.capitalize()} {heading}", decimals
    return _words(key), 4


def _histogram(values: Sequence[float | None]) -> str:
    """Counts of `values` (0 to 1) as bars in SVG, from the last tenth below the lowest up to 1."""
    defined = [value for value in values if value is not None]
    if not defined:
        return "<p>No case has a score.</p>"
    lowest = min(0.9, np.floor(min(defined) * 10) / 10)
    counts, edges = np.histogram(defined, bins=_BINS, range=(lowest, 1))
    bar_width, unit = _PLOT_WIDTH / _BINS, _PLOT_HEIGHT / counts.max()
    bars = "".join(
        f'<rect x="{_MARGIN + index * bar_width + 1:.1f}" y="{_PLOT_HEIGHT - count * unit + 8:.1f}"'
        f' width="{bar_width - 2:.1f}" height="{count * unit:.1f}">'
        f"<title>{left:.3f} to {right:.3f}: {count}</title></rect>"
        for index, (count, left, right) in enumerate(
            zip(counts, edges[:-1], edges[1:], strict=True)
        )
        if count
    )
    floor = _PLOT_HEIGHT + 8
    ticks = "".join(
        f'<text x="{_MARGIN + index * bar_width:.1f}" y="{floor + 18}" class=x>{edges[index]:.3g}'
        "</text>"
        for index in range(0, _BINS + 1, _BINS // 5)
    )
    return (
        f'<svg viewBox="0 0 {_PLOT_WIDTH + 2 * _MARGIN} {_PLOT_HEIGHT + _MARGIN + 8}" role=img'
        f' aria-label="Histogram of liver Dice over {len(defined)} cases">{bars}'
        f'<path d="M{_MARGIN} 8V{floor}H{_MARGIN + _PLOT_WIDTH}"/>'
        f'<text x="{_MARGIN - 6}" y="16" class=y>{counts.max()}</text>'
        f'<text x="{_MARGIN - 6}" y="{floor}" class=y>0</text>{ticks}</svg>'
    )


def _figure(picture: ReportPicture) -> str:
    data = base64.b64encode(encode_png(picture.image)).decode()
    caption = escape(picture.caption)
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _scored(summary: dict[str, Any]) -> list[str]:
    return [structure for structure in STRUCTURES if structure in summary]


def _words(key: str) -> str:
    return _HEADINGS.get(key, key.replace("_", " ").capitalize())


def _number(value: Any, decimals: int = 4) -> str:
    if value is None:
        return "n/a"
    return f"{value:.{decimals}f}" if isinstance(value, float) else escape(str(value))

import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from utils.contour_picture import contour_picture, widest_slice
from utils.report import ReportPicture, representative_cases, write_report
from utils.scan_metrics import compare_masks
from utils.score_summary import case_row, summarise

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMIUM_OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-sync "
    "--disable-component-update --no-first-run --virtual-time-budget=5000 --dump-dom"
)
TRUTH, PREDICTION, GREY = (86, 180, 233), (255, 150, 20), (100, 100, 100)


def cube(start: int, stop: int) -> np.ndarray:
    labels = np.zeros((12, 12, 6), np.uint8)
    labels[start:stop, 2:8, 1:5] = 1
    labels[start:stop, 3, 3] *= 2
    return labels


@pytest.fixture
def report(tmp_path):
    names = ("volume 10 <script>", "volume 9", "volume 11", "volume 2")
    predictions = (cube(2, 8), cube(5, 11), cube(0, 0), cube(2, 9))
    scores = [
        compare_masks(cube(2, 8), prediction, (1, 1, 5), with_tumour=True)
        for prediction in predictions
    ]
    summary = summarise(scores, "clear") | {"grid": "native <grid>"}
    rows = [case_row(name, score) for name, score in zip(names, scores, strict=True)]
    pictures = [
        ReportPicture(f"Picture {shade} <i>", np.full((30, 40, 3), shade, np.uint8))
        for shade in (50, 200)
    ]
    path = tmp_path / "report.html"
    write_report(path, summary, rows, pictures)
    return path


class Page(HTMLParser):
    """The first cell of every case, and the attributes of every picture."""

    def __init__(self, html: str):
        super().__init__()
        self.first_cells, self.pictures, self.headings, self.bars = [], [], [], 0
        self.feed(html[html.index("<body>") :])

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "td" and attributes.get("data-value", "").startswith("volume"):
            self.first_cells.append(attributes["data-value"])
        if tag == "img":
            self.pictures.append(attributes)
        if tag == "th":
            self.headings.append(attributes)
        self.bars += tag == "rect"


def opened(report, script: str) -> Page:
    """The page as a browser has it after running `script`."""
    if CHROMIUM is None:
        pytest.skip("no chromium installed")
    page = report.with_name("opened.html")
    page.write_text(
        report.read_text().replace("</body>", f"<script>{script}</script></body>"), "utf-8"
    )
    command = [CHROMIUM, *CHROMIUM_OPTIONS.split(), f"--user-data-dir={report.parent / 'profile'}"]
    result = subprocess.run(
        [*command, page.as_uri()], capture_output=True, text=True, timeout=100, check=True
    )
    return Page(result.stdout)


def click(heading: str) -> str:
    return (
        "[...document.querySelectorAll('#cases button')]"
        f".find(button => button.textContent === '{heading}').click();"
    )


def test_page_stands_alone_and_escapes_what_it_shows(report):
    html = report.read_text()
    assert "http:" not in html
    assert "https:" not in html
    assert not re.findall(r'(?:src|href)=["\']?(?!["\']?data:image/png;base64,)', html)
    assert html.count("<script>") == 1
    assert "volume 10 &lt;script&gt;" in html
    assert "native &lt;grid&gt;" in html
    assert "Picture 50 &lt;i&gt;" in html
    page = Page(html)
    assert page.first_cells == ["volume 10 <script>", "volume 9", "volume 11", "volume 2"]
    assert page.bars == 4  # four different Dice scores


def test_browser_shows_the_pictures(report):
    page = opened(
        report,
        "addEventListener('load', () => document.querySelectorAll('img').forEach("
        "image => image.dataset.size = `${image.naturalWidth}x${image.naturalHeight}`))",
    )
    assert [picture["data-size"] for picture in page.pictures] == ["40x30", "40x30"]
    assert page.pictures[0]["alt"] == "Picture 50 <i>"


@pytest.mark.parametrize(
    ("clicks", "order"),
    [
        (["Case"], ["2", "9", "10 <script>", "11"]),
        (["Case", "Case"], ["11", "10 <script>", "9", "2"]),
        (["Liver Dice"], ["11", "9", "2", "10 <script>"]),
        (["Liver RVD"], ["11", "10 <script>", "9", "2"]),  # -1, 0, 0, 1/6
        (["Liver ASSD, mm", "Liver ASSD, mm"], ["9", "2", "10 <script>", "11"]),  # n/a stays last
    ],
)
def test_browser_sorts_the_cases(report, clicks, order):
    page = opened(report, "".join(click(heading) for heading in clicks))
    assert page.first_cells == [f"volume {name}" for name in order]
    directions = [heading["aria-sort"] for heading in page.headings if "aria-sort" in heading]
    assert directions == ["descending" if len(clicks) == 2 else "ascending"]


def test_report_without_any_score(tmp_path):
    empty = np.zeros((2, 2, 2), np.uint8)
    scores = compare_masks(empty, empty, (1, 1, 1))
    write_report(tmp_path / "r.html", summarise([scores], "clear"), [case_row("0", scores)])
    html = (tmp_path / "r.html").read_text()
    assert "No case has a score." in html
    assert ">n/a</strong>" in html


@pytest.mark.parametrize(
    ("dice", "expected"),
    [
        ([0.9, 0.5, None, 0.7, 0.6], {"worst": 1, "median": 4, "best": 0}),
        ([0.9, 0.5], {"worst": 1, "best": 0}),
        ([None, 0.5], {"worst": 1}),
        ([None], {}),
    ],
)
def test_representative_cases(dice, expected):
    assert representative_cases([{"liver_dice": value} for value in dice]) == expected


def test_contours_lie_on_the_borders_of_the_masks():
    image = np.full((64, 96), 100, np.uint8)
    truth, prediction = np.zeros((2, 64, 96), np.uint8)
    truth[10:30, 10:40] = 1
    prediction[40:60, 50:90] = 1
    prediction[45:55, 60:80] = 2
    picture = contour_picture(image, truth, prediction, size=400)
    assert picture.shape[1] == 96 * 4
    assert picture.shape[0] > 64 * 4  # the legend
    for row, column, colour in [
        (20, 10, TRUTH),
        (40, 70, PREDICTION),
        (50, 60, PREDICTION),  # the tumour's own outline
        (50, 70, GREY),
        (20, 25, GREY),
    ]:
        assert tuple(picture[row * 4, column * 4]) == colour


def test_contours_of_empty_masks_leave_the_slice_as_it_is():
    image = np.arange(64, dtype=np.uint8).reshape(8, 8)
    picture = contour_picture(image, np.zeros_like(image), np.zeros_like(image), size=8)
    np.testing.assert_array_equal(picture[:8], np.repeat(image[..., None], 3, axis=2))


def test_widest_slice():
    truth, prediction = np.zeros((2, 4, 4, 5), np.uint8)
    truth[:2, :2, 1] = prediction[2:, 2:, 3] = truth[0, 0, 3] = 1
    assert widest_slice(truth, prediction) == 3
    assert widest_slice(truth, np.zeros_like(truth)) == 1
    assert widest_slice(truth, prediction, axis=0) == 0

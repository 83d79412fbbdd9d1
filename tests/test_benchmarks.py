"""What the benchmarks rest on: plain ways that give the same slices, and a README that agrees."""

import json
from itertools import count

import numpy as np

from benchmarks import input as input_benchmark
from benchmarks import preparation
from benchmarks.measure import RESULTS, median_seconds, seconds_per_item
from benchmarks.readme import README, results_text, with_results
from data_generators.slice_reader import SliceReader
from utils.images import read_image, read_mask
from utils.slice_files import list_split

RESULT = {
    "title": "T", "date": "D", "processor": "P", "cores": 2, "load": 0.5, "gpus": [],
    "versions": {"python": "1", "tensorflow": "2", "keras": "3", "numpy": "4"},
    "rows": [{"a": "x", "b": 1.5}, {"a": "y", "b": None}],
}  # fmt: skip


def test_the_readme_holds_the_results():
    text = README.read_text(encoding="utf-8")
    assert with_results(text, results_text()) == text
    for path in RESULTS.glob("*.json"):
        assert f"](results/{path.name})" in text


def test_a_section_of_the_readme(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(RESULT))
    assert results_text(tmp_path).splitlines() == [
        "### T",
        "",
        "D, P, 2 cores, load at the end 0.5; Python 1, TensorFlow 2, Keras 3, NumPy 4",
        "",
        "| a | b |",
        "| --- | --- |",
        "| x | 1.5 |",
        "| y |  |",
    ]


def test_turns():
    calls = []

    def stream(name):
        for number in count():
            calls.append(f"{name}{number}")
            yield

    streams = {"a": stream("a"), "b": stream("b")}
    seconds = seconds_per_item(streams, turns=2, items=2, made_ahead=1)
    assert calls == ["a0", "a1", "a2", "b0", "b1", "b2", "a3", "a4", "a5", "b3", "b4", "b5"]
    assert seconds.keys() == {"a", "b"}
    calls.clear()
    median_seconds({"c": lambda: calls.append("c"), "d": lambda: calls.append("d")}, 2)
    assert calls == ["c", "d"] * 3


def test_the_plain_preparation_gives_the_same_slices(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "SIZE", 160)  # enlarged by 2, which both do the same way
    scans, plain, own = tmp_path / "scans", tmp_path / "plain", tmp_path / "own"
    preparation.write_scans(scans, count=1, slices=3)
    assert preparation.straight_preparation(scans, plain) == 3
    preparation.prepared(scans, own, workers=1)
    for index in range(3):
        image, mask = f"image_0_{index}.png", f"mask_0_{index}.png"
        expected = read_image(own / "data/train/images" / image, 3).astype(int)
        cut_off = expected - read_image(plain / image, 3)[..., ::-1]  # B, G, R; grey cut, not round
        assert (cut_off >= -1).all() and (cut_off <= 1).all() and expected.std() > 20
        truth = read_mask(own / "data/train/mask" / mask)
        np.testing.assert_array_equal(read_mask(plain / mask), truth)


def test_the_plain_reader_gives_the_same_batches(slices, tmp_path, monkeypatch):
    monkeypatch.setattr(input_benchmark, "BATCH", 4)
    pairs = list_split(input_benchmark.configuration(slices), "TRAIN")
    copies = input_benchmark.straight_copies(pairs, tmp_path / "plain")
    batches = list(input_benchmark.straight_batches(copies, 32, classes=2))
    assert len(batches) == 3  # of 14 slices
    reader = SliceReader(32, 32, 3, classes=2)
    for number, (images, masks) in enumerate(batches):
        expected = [reader.read(pair) for pair in pairs[4 * number :]]
        for i in range(4):
            np.testing.assert_allclose(images[i], expected[i][0], atol=1e-6)
            np.testing.assert_array_equal(masks[i].argmax(axis=-1), expected[i][1])

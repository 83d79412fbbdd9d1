"""Files are decoded once, and again whenever they have changed."""

import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_slices
from utils import slice_index
from utils.errors import UserError
from utils.images import encode_png
from utils.paths import natural_key
from utils.slice_files import SlicePair
from utils.slice_index import INDEX_NAME, ImageFacts, has_foreground, image_facts, mask_facts

HALF = np.repeat(np.uint8([[0, 1]]), 4, axis=0)
AN_HOUR_AGO = time.time_ns() - 3600 * 10**9


def write(path: Path, array: np.ndarray, age: int = AN_HOUR_AGO) -> Path:
    path.write_bytes(encode_png(array))
    os.utime(path, ns=(age, age))
    return path


@pytest.fixture
def decoded(monkeypatch) -> list[str]:
    """The names of the files that were decoded."""
    names = []

    def spy(read):
        return lambda path, *arguments: names.append(path.name) or read(path, *arguments)

    for read in (slice_index.read_image, slice_index.read_mask):
        monkeypatch.setattr(slice_index, read.__name__, spy(read))
    return names


def test_files_are_decoded_once(tmp_path, decoded):
    files = [write(tmp_path / f"{number}.png", HALF) for number in range(3)]
    first = mask_facts(files)
    assert first == [(4, 2, [0, 1], [4, 4])] * 3
    assert mask_facts(files) == first
    assert sorted(decoded) == ["0.png", "1.png", "2.png"]


def test_an_image_is_looked_at_once_per_number_of_channels(tmp_path, decoded):
    files = [write(tmp_path / "a.png", HALF)]
    for channels in (1, 3, 1, 3):
        digest = hashlib.sha256(files[0].read_bytes()).hexdigest()
        assert image_facts(files, channels) == [ImageFacts(4, 2, digest)]
    assert decoded == ["a.png"] * 2
    assert mask_facts(files)[0].values == [0, 1]
    pairs = [SlicePair(files[0], files[0]), SlicePair(files[0], None)]
    assert has_foreground(pairs).tolist() == [True, False]
    assert decoded == ["a.png"] * 3


def test_the_same_facts_with_and_without_index(tmp_path):
    write_slices(tmp_path, {"1": 5})
    files = sorted((tmp_path / "mask").iterdir(), key=lambda path: natural_key(path.name))
    fresh = mask_facts(files)
    assert mask_facts(files) == fresh
    assert [set(facts.values) for facts in fresh] == [{0, 1}, {0, 1}, {0}, {0, 1}, {0, 1}]
    assert all(sum(facts.pixels) == 32 * 32 for facts in fresh)


@pytest.mark.parametrize("later", [1, -(10**9)])
def test_a_changed_file_is_decoded_again(tmp_path, later):
    file = write(tmp_path / "a.png", HALF)
    mask_facts([file])
    write(file, HALF[::-1] * 0, AN_HOUR_AGO + later)
    assert mask_facts([file])[0].values == [0]


def test_a_file_of_the_same_tick_of_the_clock_is_not_trusted(tmp_path):
    now = time.time_ns()
    file = write(tmp_path / "a.png", HALF, now)
    mask_facts([file])
    before = file.stat()
    after = write(file, HALF * 2, now).stat()
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    assert mask_facts([file])[0].values == [0, 2]


def test_damaged_files_are_never_remembered(tmp_path, decoded):
    good, bad = (write(tmp_path / name, HALF) for name in ("good.png", "bad.png"))
    content = bad.read_bytes()
    bad.write_bytes(content[:-20])
    os.utime(bad, ns=(AN_HOUR_AGO, AN_HOUR_AGO))
    missing = tmp_path / "missing.png"
    for _ in range(2):
        found = mask_facts([good, bad, missing])
        assert found[0].values == [0, 1]
        for file, facts in zip((bad, missing), found[1:], strict=True):
            assert isinstance(facts, UserError)
            assert str(file) in str(facts)
    assert sorted(decoded) == ["bad.png"] * 2 + ["good.png"] + ["missing.png"] * 2
    with pytest.raises(UserError, match=r"Masks cannot be read \(1\)[^$]*bad.png"):
        has_foreground([SlicePair(good, good), SlicePair(bad, bad)])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 0}', '{"format": 1}'])
def test_a_damaged_index_is_written_anew(tmp_path, content):
    file = write(tmp_path / "a.png", HALF)
    (tmp_path / INDEX_NAME).write_text(content)
    assert mask_facts([file])[0].values == [0, 1]
    assert list(json.loads((tmp_path / INDEX_NAME).read_text())["entries"]["mask"]) == ["a.png"]


def test_files_that_are_gone_leave_the_index(tmp_path):
    first, second = (write(tmp_path / name, HALF) for name in ("a.png", "b.png"))
    mask_facts([first])
    first.unlink()
    mask_facts([second])
    assert list(json.loads((tmp_path / INDEX_NAME).read_text())["entries"]["mask"]) == ["b.png"]


def test_a_folder_that_cannot_be_written_to_is_checked_anew(tmp_path, monkeypatch, decoded):
    def full(path, content):
        raise UserError(f"{path}: cannot be written (No space left on device)")

    monkeypatch.setattr(slice_index, "write_bytes", full)
    file = write(tmp_path / "a.png", HALF)
    assert mask_facts([file]) == mask_facts([file])
    assert decoded == ["a.png"] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]

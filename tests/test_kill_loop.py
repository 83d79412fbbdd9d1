"""What the kill loop would notice."""

import json
import subprocess
import sys

import h5py
import nibabel as nib
import numpy as np
import pytest

from benchmarks.same_results import differences, half_written
from tests.markdown import ROOT
from utils.images import encode_png


def write_results(folder):
    folder.mkdir()
    (folder / "train.json").write_text(json.dumps({"best": [1.0, "x"], "seconds": 3}))
    (folder / "cases.csv").write_text("case,dice\na,0.5\n")
    (folder / "image.png").write_bytes(encode_png(np.eye(9, dtype=np.uint8)))
    nib.save(nib.Nifti1Image(np.eye(9, dtype=np.uint8)[None], np.eye(4)), folder / "mask.nii.gz")
    with h5py.File(folder / "model.weights.h5", "w") as file:
        file["layer/kernel"] = np.arange(4.0)
    return folder


@pytest.fixture
def two_runs(tmp_path):
    return write_results(tmp_path / "a"), write_results(tmp_path / "b")


def test_two_equal_runs_differ_in_times_only(two_runs):
    expected, found = two_runs
    (found / "train.json").write_text('{"best": [1.000001, "x"], "seconds": 4}')
    (found / ".lock").touch()
    assert differences(expected, found) == []
    assert half_written(found) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.json", b'{"best": [1.1, "x"]}'),
        ("train.json", b'{"best": [1.0, "y"]}'),
        ("cases.csv", b"case,dice\na,0.6\n"),
        ("image.png", encode_png(np.zeros((9, 9), np.uint8))),
        ("new.txt", b""),
    ],
)
def test_other_contents_are_noticed(two_runs, name, content):
    expected, found = two_runs
    (found / name).write_bytes(content)
    (problem,) = differences(expected, found)
    assert problem.startswith(name)


def test_other_weights_and_voxels_are_noticed(two_runs):
    expected, found = two_runs
    with h5py.File(found / "model.weights.h5", "r+") as file:
        file["layer/kernel"][0] = 0.1
    nib.save(nib.Nifti1Image(np.zeros((1, 9, 9), np.uint8), np.eye(4)), found / "mask.nii.gz")
    assert sorted(differences(expected, found)) == [
        "mask.nii.gz differs",
        "model.weights.h5 differs",
    ]


@pytest.mark.parametrize("name", ["train.json", "image.png", "mask.nii.gz", "model.weights.h5"])
def test_half_a_file_is_noticed(two_runs, name):
    path = two_runs[0] / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (problem,) = half_written(two_runs[0])
    assert problem.startswith(f"{name} is half written")


@pytest.mark.slow
def test_a_killed_round_ends_with_the_same_results():
    command = [sys.executable, "-m", "benchmarks.kill_loop", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

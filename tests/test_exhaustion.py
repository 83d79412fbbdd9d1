"""Full disks, too little memory, and whatever else the system refuses: one line, nothing lost."""

import resource
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.scan_files import scan_arguments, write_case
from utils.errors import UserError
from utils.exhaustion import explain_exhaustion
from utils.paths import atomic_path
from utils.weights_size import weights_size

PROJECT = Path(__file__).resolve().parents[1]
PREPARE = [sys.executable, str(PROJECT / "data_preparation" / "preprocess_data.py")]


def small_files() -> None:
    """The system refuses to write more than 60 bytes into a file: as a full disk does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (60, resource.RLIM_INFINITY))


def run(command: list[str], **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


# Each overwrites `path` with more than the limit
WRITERS = {
    "bytes": "write_bytes(path, bytes(5000))",
    "json": "write_json(path, list(range(5000)))",
    "nifti": """
import nibabel, numpy
with atomic_path(path) as temporary:
    nibabel.save(nibabel.Nifti1Image(numpy.zeros((9, 9, 9)), None), temporary)""",
    "claimed": """
with atomic_path(path, size=5000) as temporary:
    raise RuntimeError("never reached")""",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_says_so(tmp_path, writer):
    path = tmp_path / "file.nii"
    path.write_text("old")
    code = f"""
from pathlib import Path
from utils import cli
from utils.paths import atomic_path, write_bytes, write_json
path = Path({str(path)!r})
def task(cfg):
    {WRITERS[writer].strip().replace(chr(10), chr(10) + "    ")}
cli.run_command(task)
"""
    done = run([sys.executable, "-c", code], preexec_fn=small_files, cwd=PROJECT)
    assert done.returncode == 2
    assert done.stderr.strip() == f"Error: {path}: cannot be written (File too large)"
    assert [file.name for file in tmp_path.iterdir()] == ["file.nii"]
    assert path.read_text() == "old"


def test_weights_claim_their_space_first(tmp_path):
    image = keras.Input((50,))
    model = keras.Model(image, keras.layers.Dense(70)(image))
    assert 51 * 70 * 4 < weights_size(model) < 51 * 70 * 4 + 100_000
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    path = tmp_path / "a.weights.h5"
    with atomic_path(path, weights_size(model)) as temporary:
        assert temporary.stat().st_size == weights_size(model)
        model.save_weights(temporary)
    assert 3 * 51 * 70 * 4 < path.stat().st_size < weights_size(model)


def test_preparation_on_a_full_disk_names_the_case_and_leaves_nothing_half(tmp_path):
    write_case(tmp_path / "scans")
    done = run([*PREPARE, *scan_arguments(tmp_path, "VERBOSE=0")], preexec_fn=small_files)
    assert done.returncode == 1
    assert "TRAIN case 0: " in done.stderr
    assert "cannot be written (File too large)" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "data").rglob("*.png")) == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (PermissionError(13, "Permission denied", "/a b"), "/a b: Permission denied"),
    ],
)
def test_what_the_system_refuses_is_one_line(error, text):
    code = f"from utils.cli import run_command\ndef task(cfg): raise {error!r}\nrun_command(task)"
    code = code.replace("denied')", "denied', '/a b')")
    done = run([sys.executable, "-c", code], cwd=PROJECT)
    assert (done.returncode, done.stderr) == (2, f"Error: {text}\n")


def test_a_name_too_long_is_one_line(tmp_path):
    arguments = scan_arguments(tmp_path, f"DATA_PREPARATION.SCANS_TRAIN_DATA_PATH={'n' * 300}")
    done = run([*PREPARE, *arguments])
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "File name too long" in done.stderr
    assert "Traceback" not in done.stderr


def test_memory_and_disk_run_out_in_words():
    def failing(message):
        raise tf.errors.ResourceExhaustedError(None, None, message)

    for message, said in {
        "/a/events; No space left on device\nmore": "^The disk is full .*/a/events",
        "OOM when allocating tensor": "lower HYPER_PARAMETERS.BATCH_SIZE .*OOM when allocating",
    }.items():
        with pytest.raises(UserError, match=said):
            explain_exhaustion(failing)(message)
    assert explain_exhaustion(np.add)(1, 2) == 3

"""Full disks, two runs in one folder, and files that try to do harm."""

import os
import pickle
import resource
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from data_preparation import unzip_scans
from models.weights import IDENTITY_KEYS, card_path, load_weights
from tests.scan_files import scan_arguments, write_case
from utils.errors import UserError
from utils.folder_lock import lock_folder
from utils.paths import atomic_path, write_bytes, write_json
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


@pytest.fixture
def other_run(tmp_path):
    """A process that has locked `tmp_path` and sleeps."""
    code = (
        "import sys, time; from pathlib import Path; from utils.folder_lock import lock_folder\n"
        "lock = lock_folder(Path(sys.argv[1]), 'KEY'); print('locked', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


def test_two_runs_in_one_folder_are_refused_until_the_first_has_ended(tmp_path, other_run):
    with pytest.raises(UserError, match=rf"KEY: another run \(process {other_run.pid}\) is"):
        lock_folder(tmp_path, "KEY")
    other_run.send_signal(signal.SIGKILL)
    other_run.wait()
    with lock_folder(tmp_path, "KEY"):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_preparation_refuses_a_second_one(tmp_path, other_run):
    write_case(tmp_path / "scans")
    lock = tmp_path / ".lock"
    (tmp_path / "data/train").mkdir(parents=True)
    (tmp_path / "data/train/.lock").symlink_to(lock)
    done = run([*PREPARE, *scan_arguments(tmp_path)])
    assert done.returncode == 2
    assert f"DATASET.TRAIN.IMAGES_PATH: another run (process {other_run.pid})" in done.stderr


def test_two_writers_never_share_a_temporary_file(tmp_path):
    path = tmp_path / "a.json"
    with atomic_path(path) as first, atomic_path(path) as second:
        first.write_text("1")
        second.write_text("2")
        write_json(path, 3)
        assert path.read_text() == "3\n"
    assert path.read_text() == "1"
    write_bytes(path, b"4")
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


class Harm:
    """Runs code when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("kind", ["pickle", "keras"])
def test_weight_files_run_no_code(tmp_path, kind):
    marker, weights = tmp_path / "harm", tmp_path / "model.weights.h5"
    image = keras.Input((2,))
    model = keras.Model(image, keras.layers.Dense(1)(image))
    if kind == "pickle":
        weights.write_bytes(pickle.dumps(Harm(marker)))
    else:
        path = str(marker)
        code = keras.layers.Lambda(
            lambda x, path=path: __import__("os").mkdir(path) or x, output_shape=(2,)
        )
        keras.Model(image, code(image)).save(tmp_path / "model.keras")
        (tmp_path / "model.keras").rename(weights)
    write_json(card_path(weights), {})
    with pytest.raises(UserError, match="model.weights.h5: cannot be loaded"):
        load_weights(model, weights, dict.fromkeys(IDENTITY_KEYS) | {"input_scaling": "none"})
    assert not marker.exists()


def archive(path: Path, members: dict[str, bytes], link: str | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
        if link is not None:
            member = zipfile.ZipInfo(link)
            member.external_attr = (stat.S_IFLNK | 0o777) << 16
            file.writestr(member, "/etc/passwd")
    return path


def test_archives_lead_nowhere_else(tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    members = {
        "../../volume-0.nii": b"0",
        "/tmp/volume-1.nii": b"1",
        "..\\volume-2.nii": b"2",
        "a/.hidden.nii": b"",
        "volume-3.NII": b"3",
    }
    path = archive(tmp_path / "a.zip", members, link="volume-4.nii")
    assert unzip_scans.unzip_scans(path, folder) == 5
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert contents == {
        "volume-0.nii": b"0",
        "volume-1.nii": b"1",
        "volume-2.nii": b"2",
        "volume-3.NII": b"3",
        "volume-4.nii": b"/etc/passwd",
    }
    assert not any(file.is_symlink() for file in folder.iterdir())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.zip", "scans"]


def test_archives_larger_than_the_disk_are_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    folder = tmp_path / "scans"
    folder.mkdir()
    usage = type("Usage", (), {"free": 1999})
    monkeypatch.setattr(unzip_scans.shutil, "disk_usage", lambda path: usage)
    path = archive(tmp_path / "a.zip", {"volume-0.nii": bytes(1000), "volume-1.nii": bytes(1000)})
    with pytest.raises(ValueError, match="has 2,000 bytes of scans; the disk has 1,999 free"):
        unzip_scans.unzip_scans(path, folder)
    assert list(folder.iterdir()) == []


def test_memory_and_disk_run_out_in_words():
    import tensorflow as tf

    from utils.exhaustion import explain_exhaustion

    def failing(message):
        raise tf.errors.ResourceExhaustedError(None, None, message)

    for message, said in {
        "/a/events; No space left on device\nmore": "^The disk is full .*/a/events",
        "OOM when allocating tensor": "lower HYPER_PARAMETERS.BATCH_SIZE .*OOM when allocating",
    }.items():
        with pytest.raises(UserError, match=said):
            explain_exhaustion(failing)(message)
    assert explain_exhaustion(np.add)(1, 2) == 3

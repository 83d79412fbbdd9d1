"""Two runs in one folder do not spoil each other."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scan_files import scan_arguments, write_case
from utils.errors import UserError
from utils.folder_lock import lock_folder
from utils.paths import atomic_path, write_bytes, write_json

PROJECT = Path(__file__).resolve().parents[1]


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
    command = [sys.executable, "data_preparation/preprocess_data.py", *scan_arguments(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
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

"""Two processes that train together through TF_CONFIG, as two machines would."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_generators.dali_data_generator import import_dali
from tests.conftest import write_slices
from utils.errors import UserError

SCRIPT = Path(__file__).with_name("train_run.py")
GENERATORS = ["TF_GENERATOR", "DALI_GENERATOR"]


def start(work_dir: Path, data: Path, batch: int, generator: str, task: dict, **options):
    """A process that trains on `data` with `work_dir` to write to."""
    paths = {
        split: {
            "IMAGES_PATH": str(data / split.lower() / "images"),
            "MASK_PATH": str(data / split.lower() / "mask"),
        }
        for split in ("TRAIN", "VAL")
    }
    changes = {
        "WORK_DIR": str(work_dir),
        "DATASET": paths,
        "DATA_GENERATOR_TYPE": generator,
        "HYPER_PARAMETERS": {"BATCH_SIZE": batch},
    }
    work_dir.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(changes), json.dumps(options)],
        env={**os.environ, **task},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tasks() -> list[dict]:
    """The environment of two workers on free ports of this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    cluster = {"worker": [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]}
    for each in sockets:
        each.close()
    return [
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}})}
        for i in range(2)
    ]


def outcome(process: subprocess.Popen) -> dict:
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr[-3000:]
    return json.loads(stdout.splitlines()[-1])


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_slices(folder / "train", {"28": 8, "29": 6}, seed=1)
    write_slices(folder / "val", {"0": 5, "1": 4}, seed=2)
    return folder


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory) -> dict:
    """One process with the global batch."""
    return outcome(start(tmp_path_factory.mktemp("alone"), data, 4, GENERATORS[0], {}))


@pytest.mark.parametrize("generator", GENERATORS)
def test_two_workers_train_as_one_process_does(data, alone, tmp_path, generator):
    if generator == "DALI_GENERATOR":
        try:
            import_dali()
        except UserError as error:
            pytest.skip(f"DALI is not here: {error}")
    folders = [tmp_path / "chief", tmp_path / "other"]
    processes = [
        start(folder, data, 2, generator, task)
        for folder, task in zip(folders, tasks(), strict=True)
    ]
    chief, other = map(outcome, processes)
    assert chief["result"]["replicas"] == 2
    assert chief["result"]["generator"] == generator
    assert chief["weights"] == other["weights"]
    for ours, expected in zip(chief["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    history, expected = chief["result"]["history"], alone["result"]["history"]
    assert history == other["result"]["history"]
    assert set(history) == set(expected)
    for name, values in expected.items():
        assert history[name] == pytest.approx(values, rel=1e-5), name
    assert files(folders[1]) == []
    names = {path.name for path in files(folders[0])}
    assert {"train.json", "model_unet3plus.weights.h5", "epoch_2.json"} <= names


def test_keras_still_needs_the_override_of_reduce(data, tmp_path):
    """When this fails, `WorkersStrategy` in utils/cluster.py can go."""
    processes = [
        start(tmp_path / str(i), data, 2, GENERATORS[0], task, plain=True)
        for i, task in enumerate(tasks())
    ]
    messages = [process.communicate(timeout=300)[1] for process in processes]
    assert all(process.returncode for process in processes)
    assert any("PerReplica" in message or "CollectiveReduceV2" in message for message in messages)

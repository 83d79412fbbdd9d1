"""The training study: its grid, out of memory, continuation, table and files."""

import csv
import json
import os

import cv2
import pytest

import benchmark_training
from benchmark_training import cell_result
from utils.config import validate_config
from utils.errors import UserError
from utils.log import console

HUGE = 10_000_000  # slices of 32 x 32 px: 123 GB


@pytest.fixture
def study(make_cfg, monkeypatch):
    """Runs a study of the tiny network whose steps take no time, and tells the cells it measures.

    Half precision is twice as fast, XLA fails, batches of 8 do not fit, and the user interrupts at
    batches of 9.
    """
    measured = []

    def run_cell(config, batch_size, amp, xla):
        if batch_size == 9:
            raise KeyboardInterrupt
        measured.append((batch_size, amp, xla))
        if batch_size == 8:
            return {"status": "out of memory"}
        if xla:
            return {"status": "failed", "error": "no compiler"}
        speed = 200.0 if amp else 100.0
        times = {"step_msec": 1000 * batch_size / speed, "images_per_second": speed}
        return {"status": "measured", **times, "gpu_utilisation": None, "hardware": "a machine"}

    monkeypatch.setattr(benchmark_training, "_run_cell", run_cell)

    def run(batches, amp=(False,), xla=(False,), **changes):
        measured.clear()
        grid = {"BATCH_SIZES": list(batches), "AMP": list(amp), "XLA": list(xla)}
        benchmark_training.benchmark_training(make_cfg(BENCHMARK_TRAINING=grid, **changes))
        return list(measured)

    return run


def test_cells_in_processes_of_their_own(make_cfg, tmp_path):
    grid = {"BATCH_SIZES": [2, HUGE], "AMP": [False], "XLA": [False]}
    cfg = make_cfg(BENCHMARK_TRAINING=grid, warmup_steps=1, bench_steps=3)
    fits, does_not_fit = benchmark_training.benchmark_training(cfg)["cells"]
    assert (fits["status"], fits["batch_size"], fits["speed_up"]) == ("measured", 2, 1.0)
    assert fits["images_per_second"] == pytest.approx(2000 / fits["step_msec"])
    assert does_not_fit["status"] == "out of memory"
    assert does_not_fit["step_msec"] is None
    assert "CPU" in fits["hardware"]


def test_table_and_files(study, tmp_path):
    with console.capture() as screen:
        assert len(study([2, 8], amp=(False, True))) == 4
    lines = [line.split() for line in screen.get().splitlines() if "float" in line]
    cells = [[word for word in line if word != "│"] for line in lines]
    assert cells == [
        ["2", "float32", "off", "20.0", "100.00", "1.00"],
        ["2", "mixed_float16", "off", "10.0", "200.00", "2.00"],
        ["8", "float32", "off", "out", "of", "memory"],
        ["8", "mixed_float16", "off", "out", "of", "memory"],
    ]
    results = tmp_path / "results"
    rows = json.loads((results / "benchmark_training.json").read_text())["cells"]
    with (results / "benchmark_training.csv").open(newline="") as file:
        texts = list(csv.DictReader(file))
    assert texts == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    assert cv2.imread(str(results / "benchmark_training.png")).std() > 5


def test_an_interrupted_study_goes_on(study):
    with pytest.raises(KeyboardInterrupt):
        study([1, 8, 9, 2])
    assert study([1, 8, 2]) == [(2, False, False)]
    assert study([1, 2]) == []
    assert study([1, 2], amp=(False, True), OPTIMIZATION={"AMP_DTYPE": "bfloat16"}) == [
        (1, True, False),
        (2, True, False),
    ]


def test_what_is_measured_again(study):
    study([1, 2], xla=(False, True))
    assert study([1], xla=(True,)) == [(1, False, True)]  # it failed
    assert study([1], OVERWRITE=True) == [(1, False, False)]
    assert study([2]) == [(2, False, False)]  # OVERWRITE began with nothing
    assert study([1], bench_steps=7) == [(1, False, False)]


NO_MEMORY = {"status": "out of memory"}


@pytest.mark.parametrize(
    ("return_code", "stdout", "stderr", "much_memory", "expected"),
    [
        (0, 'a line\n{"status": "measured"}\n', "", True, {"status": "measured"}),
        (-6, '{"status": "out of memory"}', "free()", False, NO_MEMORY),
        (-9, "", "", False, NO_MEMORY),
        (-6, "", "what():  std::bad_alloc", False, NO_MEMORY),
        (-6, "", "CUDA: Out of memory\n", False, NO_MEMORY),
        (-11, "", "a warning\n", True, NO_MEMORY),
        (-11, "", "a\nb\n", False, {"status": "failed", "error": "died of SIGSEGV after: b"}),
        (-6, "", "", False, {"status": "failed", "error": "died of SIGABRT"}),
        (1, "", "Traceback\nValueError: x", True, {"status": "failed", "error": "ValueError: x"}),
        (3, "", "", False, {"status": "failed", "error": "exit code 3"}),
    ],
)
def test_how_the_end_of_a_process_is_read(return_code, stdout, stderr, much_memory, expected):
    assert cell_result(return_code, stdout, stderr, much_memory) == expected


CRASH = """
import os, numpy
numpy.ones(600 << 20, numpy.uint8)
os.kill(os.getpid(), 11)
"""


@pytest.mark.parametrize(("gib", "status"), [(1, "out of memory"), (1000, "failed")])
def test_a_crash_is_judged_by_the_memory_it_had(make_cfg, monkeypatch, tmp_path, gib, status):
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "training_cell.py").write_text(CRASH)
    monkeypatch.setattr(benchmark_training, "ROOT", tmp_path)
    monkeypatch.setattr(benchmark_training, "available_memory", lambda: gib << 30)
    grid = {"BATCH_SIZES": [2], "AMP": [False], "XLA": [False]}
    (cell,) = benchmark_training.benchmark_training(make_cfg(BENCHMARK_TRAINING=grid))["cells"]
    assert cell["status"] == status


def test_an_interrupted_cell_does_not_go_on_alone(make_cfg, monkeypatch, tmp_path):
    def interrupt(pid, options):
        cells.append(pid)
        raise KeyboardInterrupt

    cells = []
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "training_cell.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(benchmark_training, "ROOT", tmp_path)
    monkeypatch.setattr(benchmark_training.os, "wait4", interrupt)
    with pytest.raises(KeyboardInterrupt):
        benchmark_training.benchmark_training(make_cfg())
    with pytest.raises(ProcessLookupError):
        os.kill(*cells, 0)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("BATCH_SIZES", [], "one value or more"),
        ("BATCH_SIZES", [1, 0], "at least 1"),
        ("AMP", [True, True], "none twice"),
        ("XLA", ["auto"], "expected list"),
    ],
)
def test_grids_that_are_refused(key, value, message):
    with pytest.raises(UserError, match=rf"BENCHMARK_TRAINING.{key}: found .*{message}"):
        validate_config({"BENCHMARK_TRAINING": {key: value}})

"""The inference benchmark as a command, in a folder with neither data nor weights."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmark_inference import benchmark_inference
from models.model import model_identity, prepare_model, weights_path
from models.weights import save_weights
from utils.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [
    "MODEL.TYPE=unet3plus",
    "MODEL.BACKBONE.TYPE=vgg19",
    "MODEL.FILTERS=[4,4,8,8,8]",
    "INPUT.HEIGHT=32",
    "INPUT.WIDTH=48",
    "HYPER_PARAMETERS.BATCH_SIZE=2",
    "OPTIMIZATION.AMP=False",
    "OPTIMIZATION.XLA=False",
    "+warmup_steps=2",
    "+bench_steps=5",
    "+runs=3",
]


def test_the_command_in_an_empty_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmark_inference.py"), *COMMAND],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "results" / "benchmark_inference.json").read_text())
    latency, throughput = result["latency_msec"], result["throughput_samples_per_sec"]
    assert done.stdout.splitlines()[-2:] == [
        f"Latency: {latency:.2f} msec",
        f"Throughput/FPS: {throughput:.2f} samples/sec",
    ]
    assert throughput == pytest.approx(2 * 1000 / latency)
    assert latency == pytest.approx(np.mean(result["latency_msec_of_runs"]))
    assert len(result["latency_msec_of_runs"]) == 3
    assert 0 < result["latency_msec_median"] <= result["latency_msec_p95"]
    assert result["config"]["bench_steps"] == 5
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_weights_are_used_when_asked_for(make_cfg):
    cfg = make_cfg(warmup_steps=0, bench_steps=1, use_weights=True)
    with pytest.raises(UserError, match="no weights at"):
        benchmark_inference(cfg)
    save_weights(prepare_model(cfg), weights_path(cfg), model_identity(cfg))
    assert benchmark_inference(cfg)["latency_msec"] > 0

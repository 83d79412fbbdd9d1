"""Our own layers on two replicas train as on one, or as Keras's."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("layer_replicas.py")


@pytest.mark.parametrize("layer", ["batch normalisation", "up-sampling convolution"])
def test_layers_train_alike_on_two_replicas(layer):
    command = [sys.executable, PROGRAM, layer]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-5

"""What the machine has: memory that can be limited, and how busy its GPU is."""

import subprocess
import sys
from pathlib import Path

import pytest

from utils.gpu_usage import GpuUsage
from utils.memory_limit import available_memory

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30
MEMINFO = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"  # 16 and 8 GiB


def machine(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


@pytest.mark.parametrize(
    ("files", "gib"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{2 * GIB}\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{9 * GIB}\n"}, 8),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 8),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{GIB}\n"}, 1),
        (
            {
                "proc/self/cgroup": "3:cpu:/a\n2:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{3 * GIB}\n",
                "sys/fs/cgroup/cpu/a/memory.limit_in_bytes": f"{GIB}\n",
            },
            3,
        ),
    ],
)
def test_available_memory(tmp_path, files, gib):
    assert available_memory(machine(tmp_path, {"proc/meminfo": MEMINFO, **files})) == gib * GIB


def test_memory_of_an_unknown_system(tmp_path):
    assert available_memory(tmp_path) is None


def test_a_limited_process_fails_alone():
    code = (
        "import numpy; from utils.memory_limit import available_memory, limit_memory\n"
        "size = available_memory(); limit_memory()\n"
        "try: numpy.ones(size, numpy.uint8)\n"
        "except MemoryError: print('no memory')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "no memory\n"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A program that says 80 % for GPU 3 and that it has no other."""
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\n[ "$1" = --id=3 ] && echo 80 || echo "No devices were found"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("device", "visible", "percent"),
    [("GPU:3", "", 80), ("GPU:1", "5,3", 80), ("GPU:0", "", None), ("CPU:0", "", None)],
)
def test_usage_of_a_gpu(nvidia_smi, monkeypatch, device, visible, percent):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with GpuUsage(device) as usage:
        pass
    assert usage.percent == percent


def test_usage_without_the_program(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with GpuUsage("GPU:0") as usage:
        pass
    assert usage.percent is None

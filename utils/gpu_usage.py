"""How busy a GPU is, as NVIDIA's own tool tells."""

import os
import shutil
import statistics
import subprocess
from threading import Event, Thread

_INTERVAL = 0.2  # s


class GpuUsage:
    """Samples the utilisation of a device while its `with` block runs.

    Attributes:
        percent: mean share of the time in which the GPU computed; None for a CPU, and where
            nvidia-smi is not installed or does not tell.

    Args:
        device: name of the device, such as "GPU:0". GPUs are counted as nvidia-smi does, which is
            TensorFlow's order where all are alike, or with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """

    def __init__(self, device: str):
        kind, _, number = device.partition(":")
        program = shutil.which("nvidia-smi") if kind == "GPU" else None
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        gpu = visible[int(number)] if visible else number
        self._command = program and [
            program, f"--id={gpu}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits",
        ]  # fmt: skip
        self._samples: list[int] = []
        self._over = Event()
        self._thread = Thread(target=self._sample, daemon=True)

    @property
    def percent(self) -> float | None:
        """Mean of the samples so far."""
        return statistics.mean(self._samples) if self._samples else None

    def __enter__(self) -> "GpuUsage":
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; the sample that is being taken still counts."""
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while self._command:
            done = subprocess.run(self._command, capture_output=True, text=True, check=False)
            if done.stdout.strip().isdigit():
                self._samples.append(int(done.stdout))
            if self._over.wait(_INTERVAL):
                break

"""What every run writes down about itself."""

import platform
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from omegaconf import DictConfig, OmegaConf

from utils.paths import output_folder, resolve_path, write_json
from utils.runtime import Runtime


def run_facts(cfg: DictConfig, runtime: Runtime) -> dict[str, Any]:
    """Command, versions, devices and the whole configuration of a run."""
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "numpy": np.__version__,
        },
        "devices": list(runtime.devices),
        "hardware": list(runtime.hardware),
        "replicas": runtime.replicas,
        "amp": runtime.amp,
        "precision": runtime.precision,
        "xla": runtime.xla,
        "config": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
    }


def results_folder(cfg: DictConfig) -> Path:
    """Where a run leaves its results, `RESULTS_PATH`, made if it is not there yet."""
    return output_folder(resolve_path(cfg.RESULTS_PATH, cfg.WORK_DIR), "RESULTS_PATH")


def write_result(cfg: DictConfig, name: str, content: dict[str, Any]) -> Path:
    """Write `content` as JSON under `RESULTS_PATH`; returns the path."""
    path = results_folder(cfg) / name
    write_json(path, content)
    return path

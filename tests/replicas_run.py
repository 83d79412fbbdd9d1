"""Run by test_replicas.py in a process of its own: every variant on one and on two CPU replicas.

Prints a JSON list with one entry per variant: both histories, and the weight that differs most.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import utils  # noqa: F401, I001  (sets the environment before TensorFlow is imported)
import keras
import numpy as np

from data_generators.data_generator import get_data_generator
from models.model import compile_model, prepare_model
from tests.conftest import TINY, merged
from utils.config import validate_config
from utils.runtime import setup_runtime

ADAM, SGD = (keras.optimizers.Adam, 5e-5), (keras.optimizers.SGD, 1e-3)
RUNS = (  # variant, backbone, optimizer, generator of the run on two replicas
    ("unet3plus", "vgg16", ADAM, "TF_GENERATOR"),
    ("unet3plus_deepsup", "vgg16", SGD, "DALI_GENERATOR"),
    ("unet3plus_deepsup_cgm", "unet3plus", ADAM, "TF_GENERATOR"),
)


def fit(work_dir: str, run: tuple, generator: str, replicas: int) -> tuple[dict, dict]:
    """History and weights by path after three steps of four slices."""
    variant, backbone, (optimizer, rate), _ = run
    changes = {
        "WORK_DIR": work_dir,
        "DATA_GENERATOR_TYPE": generator,
        "MODEL": {
            "TYPE": variant,
            "BACKBONE": {"TYPE": backbone},
            "FILTERS": [4] * 5,
            "L2": 1e-4,
            "CGM": {"DROPOUT": 0.0},
        },
        "HYPER_PARAMETERS": {"BATCH_SIZE": 4 // replicas},
        "USE_MULTI_GPUS": {"CPU_REPLICAS": replicas},
    }
    cfg = validate_config(merged(TINY, changes))
    runtime = setup_runtime(cfg, distribute=True)
    training, validation = (
        get_data_generator(cfg, mode, runtime, for_fit=True) for mode in ("TRAIN", "VAL")
    )
    with runtime.strategy.scope():
        model = prepare_model(cfg)
        compile_model(model, cfg, runtime)
        model.optimizer = optimizer(rate)
    history = model.fit(
        training.dataset,
        steps_per_epoch=training.steps_per_epoch,
        **({"validation_data": validation.dataset} if "cgm" in variant else {}),
        validation_steps=validation.steps_per_epoch,
        shuffle=False,
        verbose=0,
    ).history
    assert runtime.replicas == replicas
    return history, {weight.path: weight.numpy() for weight in model.weights}


def main(work_dir: str, has_dali: bool) -> None:
    results = []  # two replicas come first, as TensorFlow fixes the devices then
    for run in RUNS:
        two, weights = fit(work_dir, run, run[-1] if has_dali else "TF_GENERATOR", 2)
        one, expected = fit(work_dir, run, "TF_GENERATOR", 1)
        apart = {path: float(np.abs(weights[path] - expected[path]).max()) for path in expected}
        worst = max(apart, key=apart.get)
        results.append({"one": one, "two": two, "worst": worst, "apart": apart[worst]})
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "dali")

"""The networks that are compared: plain Keras layers as the paper draws them, and this project's.

`python -m benchmarks.networks plain 1` trains three steps on one slice per batch and prints the
peak resident memory of the process, GB.
"""

import sys

import numpy as np
from omegaconf import DictConfig

from benchmarks.measure import own_peak_memory
from models.model import compile_model, prepare_model
from models.unet3plus import UNet3Plus
from tests.straight_unet3plus import straight_unet3plus
from utils.config import validate_config
from utils.runtime import setup_runtime

KINDS = ("plain", "fast")
STEPS = 3


def configuration(batch: int) -> DictConfig:
    """The default network in float32 without XLA."""
    return validate_config(
        {"HYPER_PARAMETERS": {"BATCH_SIZE": batch}, "OPTIMIZATION": {"AMP": False, "XLA": False}}
    )


def network(kind: str, cfg: DictConfig) -> UNet3Plus:
    """The compiled network of `cfg`; its plain version has the same weights and losses."""
    runtime = setup_runtime(cfg)
    if kind == "fast":
        model = prepare_model(cfg)
    else:
        shape = (cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH, cfg.INPUT.CHANNELS)
        graph = straight_unet3plus(
            cfg.MODEL.TYPE, cfg.MODEL.BACKBONE.TYPE, shape, cfg.OUTPUT.CLASSES, cfg.MODEL.FILTERS
        )
        model = UNet3Plus(graph.input, graph.output, name="plain")
    compile_model(model, cfg, runtime)
    return model


def batch_of(cfg: DictConfig) -> tuple[np.ndarray, np.ndarray]:
    """Random slices and a disc as the mask of each."""
    size, height, width = cfg.HYPER_PARAMETERS.BATCH_SIZE, cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH
    rng = np.random.default_rng(cfg.SEED)
    images = rng.random((size, height, width, cfg.INPUT.CHANNELS), np.float32)
    rows, columns = np.ogrid[:height, :width]
    disc = (rows - height / 2) ** 2 + (columns - width / 2) ** 2 < (height / 4) ** 2
    return images, np.tile(disc.astype(np.uint8), (size, 1, 1))


def main() -> None:
    """Train a few steps and print the peak memory."""
    cfg = configuration(int(sys.argv[2]))
    model, batch = network(sys.argv[1], cfg), batch_of(cfg)
    for _ in range(STEPS):
        model.train_on_batch(*batch)
    print(own_peak_memory())


if __name__ == "__main__":
    main()

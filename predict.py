"""Look at predictions: `python predict.py DATASET.VAL.IMAGES_PATH=<folder or list>`."""

from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from data_generators.data_generator import get_data_generator
from models.inference import most_likely_class
from models.model import inference_view, model_identity, prepare_model, weights_path
from models.weights import load_weights
from utils.cli import run_command
from utils.images import encode_png
from utils.log import console, progress
from utils.paths import write_bytes
from utils.pictures import overlay, panel, to_rgb
from utils.results import results_folder
from utils.runtime import setup_runtime


def predict(cfg: DictConfig) -> list[Path]:
    """Write a picture of image, truth (where there are masks) and prediction for every slice.

    Returns the pictures' paths, under `RESULTS_PATH/predictions`.
    """
    runtime = setup_runtime(cfg)
    split = get_data_generator(cfg, "VAL", runtime)
    model = prepare_model(cfg)
    load_weights(model, weights_path(cfg), model_identity(cfg))
    view = inference_view(model, runtime.jit_compile)

    folder = results_folder(cfg) / "predictions"
    written = []
    batches = progress(split.dataset, "Predicting", split.steps, "batch", cfg.VERBOSE)
    for index, (images, masks) in enumerate(batches):
        predictions = most_likely_class(view.predict_on_batch(images))
        pairs = split.dataset.batch_pairs(index)
        for pair, image, truth, prediction in zip(pairs, images, masks, predictions, strict=True):
            shown = to_rgb((image * 255).round().astype(np.uint8), cfg.SHOW_CENTER_CHANNEL_IMAGE)
            pictures = {"image": shown}
            if pair.mask is not None:
                pictures["truth"] = overlay(shown, truth)
            pictures["prediction"] = overlay(shown, prediction)
            path = folder / f"{pair.image.stem}.png"
            write_bytes(path, encode_png(panel(pictures)))
            written.append(path)
    console.print(f"{len(written)} pictures: {folder}")
    return written


if __name__ == "__main__":
    run_command(predict)

"""Export the trained network: `python export.py MODEL.TYPE=unet3plus 'EXPORT.FORMATS=[onnx]'`.

The result is the inference view in float32: images (B, H, W, C) in [0, 1] to probabilities of shape
(B, H, W, classes). It is served without this project and without Keras.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from omegaconf import DictConfig, OmegaConf

from models.model import inference_view, model_identity, prepare_model, weights_path
from models.weights import WEIGHTS_SUFFIX, load_weights, require_weights
from utils.cli import run_command
from utils.errors import UserError
from utils.log import console
from utils.paths import atomic_path, output_folder, resolve_path, write_json
from utils.results import run_facts
from utils.runtime import setup_runtime

TOLERANCE = 1e-4  # largest difference of a probability between Keras and the exported network
SUFFIXES = {"saved_model": "_saved_model", "onnx": ".onnx"}
ONNX_PACKAGES = ("tf2onnx", "onnx", "onnxruntime")
# The network as TensorFlow on the CPU computes it in full precision: any server can be held to that
SETTINGS = {"OPTIMIZATION": {"AMP": False, "XLA": False}, "USE_MULTI_GPUS": {"CPU_REPLICAS": 1}}


def export(cfg: DictConfig) -> dict[str, Path]:
    """Write the network in every one of EXPORT.FORMATS, and a description, into EXPORT.PATH.

    Each is loaded again and must agree with Keras on random images, otherwise it is not kept.

    Returns:
        The file (ONNX) or folder (SavedModel) by format, and "description": a JSON file with what
        is needed to feed the network (size, HU window) and how closely each format agrees.

    Raises:
        UserError: no weights or other ones, missing packages, or a format that disagrees.
    """
    weights = weights_path(cfg)
    require_weights(weights)
    formats = [str(name) for name in cfg.EXPORT.FORMATS]
    _require_packages(formats)
    folder = output_folder(resolve_path(cfg.EXPORT.PATH, cfg.WORK_DIR), "EXPORT.PATH")
    cfg = OmegaConf.merge(cfg, SETTINGS)
    runtime = setup_runtime(cfg)
    model = prepare_model(cfg)
    card = load_weights(model, weights, model_identity(cfg))
    view = inference_view(model)

    name = weights.name.removesuffix(WEIGHTS_SUFFIX)
    batch, size = cfg.EXPORT.BATCH_SIZE, (cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH, cfg.INPUT.CHANNELS)
    images = np.random.default_rng(cfg.SEED).random((batch or 2, *size), np.float32)
    written, differences = {}, {}
    for kind in formats:
        written[kind] = folder / f"{name}{SUFFIXES[kind]}"
        differences[kind] = export_checked(view, kind, written[kind], batch, images)
        console.print(f"{kind}: {written[kind]}, within {differences[kind]:.1e} of Keras")
    written["description"] = folder / f"{name}_export.json"
    description = {
        "input": {"shape": [batch, *size], "type": "float32", "range": [0, 1]},
        "output": {"shape": [batch, *size[:2], cfg.OUTPUT.CLASSES], "type": "float32"},
        "weights": card,
        "largest_difference": differences,
        **run_facts(cfg, runtime),
    }
    write_json(written["description"], description)
    return written


def export_checked(
    view: keras.Model, kind: str, path: Path, batch: int | None, images: np.ndarray
) -> float:
    """Write `view` to `path` as `kind`, for `batch` images at a time (None: any number).

    `images`, (B, H, W, C), give the size, and are what the two networks are compared on.

    Returns:
        The largest difference of a probability.

    Raises:
        UserError: it cannot be written or loaded, or differs by more than 1e-4; `path` is then as
            it was.
    """
    signature = [keras.InputSpec(shape=(batch, *images.shape[1:]), dtype="float32", name="image")]
    expected = view.predict_on_batch(images)
    keras_format = {"saved_model": "tf_saved_model"}.get(kind, kind)
    with atomic_path(path) as temporary:
        try:
            view.export(temporary, format=keras_format, input_signature=signature, verbose=False)
            actual = _LOADERS[kind](temporary)(images)
        except Exception as error:  # each converter and runtime has errors of its own
            raise UserError(
                f"EXPORT.FORMATS: {kind} could not be written and loaded again "
                f"({type(error).__name__}: {error})"
            ) from None
        same_shape = actual.shape == expected.shape
        difference = float(np.abs(actual - expected).max()) if same_shape else np.inf
        if not difference <= TOLERANCE:  # also refuses NaN
            raise UserError(
                f"EXPORT.FORMATS: {kind} is not kept, it differs from Keras by {difference:.1e}"
            )
    return difference


def _require_packages(formats: list[str]) -> None:
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if "onnx" in formats and missing:
        raise UserError(
            f"EXPORT.FORMATS: onnx needs {', '.join(missing)}: "
            "'pip install -r requirements-export.txt'; or export 'EXPORT.FORMATS=[saved_model]'"
        )


def _load_saved_model(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    loaded = tf.saved_model.load(str(path))
    return lambda images: loaded.serve(images).numpy()


def _load_onnx(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"image": images})[0]


_LOADERS: dict[str, Callable[[Path], Any]] = {"saved_model": _load_saved_model, "onnx": _load_onnx}


if __name__ == "__main__":
    run_command(export)

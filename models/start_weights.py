"""Where training starts: `MODEL.WEIGHTS` (the whole network) or `MODEL.BACKBONE.WEIGHTS`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
from omegaconf import DictConfig

from models.backbones import ENCODERS
from models.from_weights import layers_from_weights
from models.h5_layers import Layers, set_layers
from models.legacy_weights import read_legacy_weights
from models.model import model_identity
from models.vgg_weights import download_vgg_weights, read_vgg_weights
from models.weights import IDENTITY_KEYS, WEIGHTS_SUFFIX, differences, read_card
from utils.errors import UserError
from utils.log import logger
from utils.paths import resolve_path

OF_HEADS = {"variant", "classes"}  # entries of a card that only the heads depend on
SCALING_HINT = (
    "this encoder began with ImageNet weights: take the whole file by MODEL.WEIGHTS, together "
    "with MODEL.BACKBONE.WEIGHTS=imagenet"
)


class StartWeights:
    """Weights to start from, checked but not in the network yet.

    Args:
        key: the configuration key that names them; None to start at random.
        path: of their file.
        read: their layers, called when the network is there.
    """

    def __init__(
        self, key: str | None = None, path: Path | None = None, read: Callable[[], Layers] = dict
    ):
        self._key, self._path, self._read = key, path, read
        self._facts: dict[str, Any] = {}

    def load(self, model: keras.Model) -> None:
        """Put every layer of the file that `model` has, too, into it, and log which."""
        if self._key is None:
            return
        found = self._read()
        wanted = {layer.name: layer for layer in model.layers if layer.weights}
        taken = {name: found[name] for name, layer in wanted.items() if _fits(found, layer)}
        set_layers(model, taken)
        new = [name for name in wanted if name not in taken]
        left = [name for name in found if name not in taken]
        self._facts = {
            "key": self._key,
            "file": str(self._path),
            "taken": list(taken),
            "started_at_random": new,
            "left_in_the_file": left,
        }
        logger.info(f"{self._key}: {len(taken)} of {len(wanted)} layers from {self._path}")
        for what, names in (("taken", taken), ("random start", new), ("left in the file", left)):
            if names:
                logger.info(f"{self._key}: {what}: {', '.join(names)}")

    def state(self) -> dict[str, Any]:
        """What was loaded; nothing after a random start."""
        return self._facts

    def restore(self, state: dict[str, Any]) -> None:
        """Remember what an interrupted run was started from."""
        self._facts = state


def find_start_weights(cfg: DictConfig) -> StartWeights:
    """The weights that the configuration starts from; reads files but touches no device.

    MODEL.WEIGHTS brings the encoder along, so that MODEL.BACKBONE.WEIGHTS is not read beside it and
    only says how the input is scaled.

    Raises:
        UserError: a file is missing or fits another network, or a download failed.
    """
    weights, encoder = cfg.MODEL.WEIGHTS, cfg.MODEL.BACKBONE.WEIGHTS
    if weights is not None:
        if encoder is not None:
            logger.info("MODEL.BACKBONE.WEIGHTS: not read, as MODEL.WEIGHTS has an encoder")
        return _network_weights(_existing(cfg, "MODEL.WEIGHTS", weights), model_identity(cfg))
    if encoder is not None:
        return _encoder_weights(cfg, encoder, str(cfg.MODEL.BACKBONE.TYPE))
    return StartWeights()


def _network_weights(path: Path, identity: dict[str, Any]) -> StartWeights:
    key = "MODEL.WEIGHTS"
    if path.name.endswith(WEIGHTS_SUFFIX):
        card, read = read_card(path), partial(layers_from_weights, path)
    else:
        card = read_legacy_weights(path, key)[0]
        read = partial(_legacy_layers, path, key)
    _refuse(key, path, card, identity, IDENTITY_KEYS.keys() - OF_HEADS)
    return StartWeights(key, path, read)


def _legacy_layers(path: Path, key: str) -> Layers:
    return read_legacy_weights(path, key)[1]


def _encoder_weights(cfg: DictConfig, weights: str, kind: str) -> StartWeights:
    key = "MODEL.BACKBONE.WEIGHTS"
    path = download_vgg_weights(kind) if weights == "imagenet" else _existing(cfg, key, weights)
    if not path.name.endswith(WEIGHTS_SUFFIX):
        read_vgg_weights(path, kind)  # fails early; the tensors are read again when needed
        return StartWeights(key, path, partial(read_vgg_weights, path, kind))
    encoder = ENCODERS[kind]
    entries = {"backbone", "filters", "channels", "input_scaling"}
    if encoder.batch_norm:
        entries.add("batch_norm_epsilon")
    _refuse(key, path, read_card(path), model_identity(cfg), entries)
    prefix = encoder.prefix.removesuffix("{level}")

    def read() -> Layers:
        layers = layers_from_weights(path)
        return {name: tensors for name, tensors in layers.items() if name.startswith(prefix)}

    return StartWeights(key, path, read)


def _existing(cfg: DictConfig, key: str, name: str) -> Path:
    path = resolve_path(name, cfg.WORK_DIR)
    if not path.is_file():
        raise UserError(f"{key}: no weights at {path}")
    return path


def _refuse(
    key: str, path: Path, card: dict[str, Any], identity: dict[str, Any], entries: set[str]
) -> None:
    """Raise a UserError if the network that `path` belongs to differs in one of `entries`."""
    found = {e: text for e, text in differences(card, identity).items() if e in entries}
    if key == "MODEL.BACKBONE.WEIGHTS" and "input_scaling" in found:
        found["input_scaling"] = SCALING_HINT
    if found:
        raise UserError.listing(f"{key}: {path} belongs to another network", list(found.values()))


def _fits(found: Layers, layer: keras.layers.Layer) -> bool:
    """Whether the file has the layer, in its shapes (heads of another class count differ)."""
    shapes = [tensor.shape for tensor in found.get(layer.name, [])]
    return shapes == [tuple(weight.shape) for weight in layer.weights]

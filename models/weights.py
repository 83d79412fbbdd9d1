"""Weight files: written in one step with a card beside them, loaded only where they fit.

`<name>.weights.h5` holds tensors by position, so weights of another variant can load without a word
and mean nothing. `<name>.json` says what they belong to and is checked first.
"""

import warnings
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from utils.errors import UserError
from utils.log import logger
from utils.paths import LEGACY_SUFFIXES, WEIGHTS_SUFFIX, atomic_path, read_json, write_json
from utils.weights_size import weights_size

FORMAT = 1

# What must be equal before weights are loaded: card entry -> the config key that decides it
IDENTITY_KEYS = {
    "variant": "MODEL.TYPE",
    "backbone": "MODEL.BACKBONE.TYPE",
    "filters": "MODEL.FILTERS",
    "classes": "OUTPUT.CLASSES",
    "channels": "INPUT.CHANNELS",
    "batch_norm_epsilon": "MODEL.BATCH_NORM.EPSILON",
    "input_scaling": "MODEL.BACKBONE.WEIGHTS",
}
ADDED_LATER = {"input_scaling": "none"}  # what cards mean that do not have the entry yet


def card_path(weights: Path) -> Path:
    """The JSON file beside a weight file."""
    return weights.with_name(weights.name.removesuffix(WEIGHTS_SUFFIX) + ".json")


def read_card(weights: Path) -> dict[str, Any]:
    """What the JSON file beside a weight file says.

    Raises:
        UserError: it is missing or damaged, or there is no weight file.
    """
    if not weights.is_file():
        raise UserError(f"Weights not found: {weights}")
    return ADDED_LATER | read_json(card_path(weights), "The description of the weights")


def differences(card: dict[str, Any], identity: dict[str, Any]) -> dict[str, str]:
    """The entries in which weights with this card do not fit a network, and a sentence for each."""
    return {
        entry: f"{key}: found {identity[entry]!r}; the weights need {card.get(entry)!r}"
        for entry, key in IDENTITY_KEYS.items()
        if card.get(entry) != identity[entry]
    }


def save_weights(model: keras.Model, weights: Path, identity: dict[str, Any], **facts: Any) -> None:
    """Write the weights of `model`, without optimizer state, and their card.

    `identity` has the entries of `IDENTITY_KEYS`; `facts` (epoch, score, …) are for the reader.
    """
    graph = keras.Model(model.inputs, model.outputs)  # an uncompiled view: no optimizer in the file
    with atomic_path(weights, weights_size(graph)) as temporary:
        graph.save_weights(temporary)
    versions = {"keras": keras.__version__, "tensorflow": tf.__version__}
    write_json(card_path(weights), {"format": FORMAT, **identity, **facts, "versions": versions})


def require_weights(weights: Path) -> None:
    """Raise a UserError unless the weight file is there; it names those that are."""
    if not weights.is_file():
        others = sorted(str(path) for path in weights.parent.glob(f"*{WEIGHTS_SUFFIX}"))
        found = f"; this folder has {', '.join(others)}" if others else ""
        raise UserError(
            f"MODEL.WEIGHTS_FILE_NAME: no weights at {weights}{found}. Train first: "
            f"'python train.py' with the same MODEL.* overrides{_legacy_hint(weights)}"
        )


def _legacy_hint(weights: Path) -> str:
    stem = weights.name.removesuffix(WEIGHTS_SUFFIX)
    files = [weights.with_name(stem + suffix) for suffix in LEGACY_SUFFIXES]
    commands = [f"'python -m models.legacy_weights {f}'" for f in files if f.is_file()]
    return f"; or convert what is there: {commands[0]}" if commands else ""


def load_weights(model: keras.Model, weights: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Load a weight file into the full graph of its own variant; returns the card.

    Raises:
        UserError: the file or its card is missing or damaged, or the card names another network.
    """
    require_weights(weights)
    card = read_card(weights)
    if found := differences(card, identity):
        raise UserError.listing(f"{weights} belongs to another network", list(found.values()))
    graph = keras.Model(model.inputs, model.outputs)
    try:
        with warnings.catch_warnings():  # the error says all there is to say
            warnings.simplefilter("ignore")
            graph.load_weights(weights)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        versions = card.get("versions")
        raise UserError(
            f"{weights}: cannot be loaded, the file is damaged or was written by another version "
            f"({reason}; written by {versions})"
        ) from None
    logger.info(f"Weights: {weights}")
    return card

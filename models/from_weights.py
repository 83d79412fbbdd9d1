"""A network from its weight file alone: the card beside the file says what to build."""

from pathlib import Path
from typing import Any

import numpy as np

from models.blocks import UnitSettings
from models.unet3plus import UNet3Plus, build_unet3plus
from models.weights import IDENTITY_KEYS, card_path, load_weights, read_card
from utils.errors import UserError


def model_from_weights(weights: Path) -> tuple[UNet3Plus, dict[str, Any]]:
    """The full graph with its weights, and the card: what it was trained on, and how.

    Raises:
        UserError: the file or its card is missing or damaged.
    """
    card = read_card(weights)
    if missing := sorted({*IDENTITY_KEYS, "input_size"} - card.keys()):
        raise UserError(f"{card_path(weights)}: has no {', '.join(missing)}")
    model = build_from_identity(card, *card["input_size"])
    load_weights(model, weights, {entry: card[entry] for entry in IDENTITY_KEYS})
    return model, card


def layers_from_weights(weights: Path) -> dict[str, list[np.ndarray]]:
    """The tensors of a weight file of ours, by layer name.

    Raises:
        UserError: the file or its card is missing or damaged.
    """
    card = read_card(weights)
    model = build_from_identity(card)
    load_weights(model, weights, {entry: card[entry] for entry in IDENTITY_KEYS})
    return {layer.name: layer.get_weights() for layer in model.layers if layer.weights}


def build_from_identity(
    identity: dict[str, Any], height: int | None = None, width: int | None = None
) -> UNet3Plus:
    """The full graph that an identity (`models.weights.IDENTITY_KEYS`) describes."""
    return build_unet3plus(
        identity["variant"],
        identity["backbone"],
        (height, width, identity["channels"]),
        identity["classes"],
        identity["filters"],
        settings=UnitSettings(epsilon=identity["batch_norm_epsilon"]),
        input_scaling=identity["input_scaling"],
    )

"""A network from its weight file alone: the card beside the file says what to build."""

from pathlib import Path
from typing import Any

from models.blocks import UnitSettings
from models.unet3plus import UNet3Plus, build_unet3plus
from models.weights import IDENTITY_KEYS, card_path, load_weights
from utils.errors import UserError
from utils.paths import read_json


def model_from_weights(weights: Path) -> tuple[UNet3Plus, dict[str, Any]]:
    """The full graph with its weights, and the card: what it was trained on, and how.

    Raises:
        UserError: the file or its card is missing or damaged.
    """
    card = read_json(card_path(weights), "The description of the weights")
    if missing := sorted({*IDENTITY_KEYS, "input_size"} - card.keys()):
        raise UserError(f"{card_path(weights)}: has no {', '.join(missing)}")
    model = build_unet3plus(
        card["variant"],
        card["backbone"],
        (*card["input_size"], card["channels"]),
        card["classes"],
        card["filters"],
        settings=UnitSettings(epsilon=card["batch_norm_epsilon"]),
    )
    load_weights(model, weights, {entry: card[entry] for entry in IDENTITY_KEYS})
    return model, card

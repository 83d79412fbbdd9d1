"""Weight files: strict loading, cards, and messages that say what would fit."""

import numpy as np
import pytest

from models.from_weights import model_from_weights
from models.model import compile_model, model_identity, prepare_model, weights_path
from models.weights import card_path, load_weights, save_weights
from utils.errors import UserError
from utils.paths import read_json
from utils.runtime import setup_runtime

DEEP = {"TYPE": "unet3plus_deepsup"}


@pytest.fixture
def saved(make_cfg):
    """A configuration, its model and the weights written for it."""
    cfg = make_cfg(MODEL=DEEP)
    model = prepare_model(cfg)
    save_weights(model, weights_path(cfg), model_identity(cfg), epoch=3)
    return cfg, model, weights_path(cfg)


def test_weights_come_back_tensor_by_tensor(saved):
    cfg, model, path = saved
    assert path.name == "model_unet3plus_deepsup.weights.h5"
    other = prepare_model(cfg)
    card = load_weights(other, path, model_identity(cfg))
    assert card["epoch"] == 3
    for one, two in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_file_holds_no_optimizer_state(make_cfg, saved):
    cfg, model, path = saved
    size = path.stat().st_size
    compile_model(model, cfg, setup_runtime(cfg))
    model.optimizer.build(model.trainable_variables)
    save_weights(model, path, model_identity(cfg))
    assert path.stat().st_size == size


def test_the_card_says_what_the_weights_belong_to(saved):
    _, _, path = saved
    card = read_json(card_path(path), "card")
    assert card_path(path).name == "model_unet3plus_deepsup.json"
    assert card["variant"] == "unet3plus_deepsup"
    assert card["filters"] == [4, 4, 8, 8, 8]
    assert set(card["versions"]) == {"keras", "tensorflow"}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"MODEL": {"TYPE": "unet3plus"}}, ["MODEL.TYPE: found 'unet3plus'", "unet3plus_deepsup"]),
        ({"MODEL": DEEP | {"BACKBONE": {"TYPE": "vgg16"}}}, ["MODEL.BACKBONE.TYPE"]),
        ({"MODEL": DEEP | {"FILTERS": [4, 4, 8, 8, 9]}}, ["MODEL.FILTERS", "[4, 4, 8, 8, 8]"]),
        ({"MODEL": DEEP, "OUTPUT": {"CLASSES": 3}}, ["OUTPUT.CLASSES: found 3", "need 2"]),
        ({"MODEL": DEEP, "INPUT": {"CHANNELS": 1}}, ["INPUT.CHANNELS: found 1", "need 3"]),
    ],
)
def test_weights_of_another_network_are_refused(make_cfg, saved, changes, parts):
    _, _, path = saved
    cfg = make_cfg(**changes)
    model = prepare_model(cfg)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(UserError) as error:
        load_weights(model, path, model_identity(cfg))
    for part in parts:
        assert part in str(error.value)
    assert all(
        (weight.numpy() == old).all() for weight, old in zip(model.weights, before, strict=True)
    )


def test_missing_weights_name_what_is_there(saved):
    cfg, model, path = saved
    with pytest.raises(UserError, match="no weights at .*other.*model_unet3plus_deepsup"):
        load_weights(model, path.with_name("other.weights.h5"), model_identity(cfg))


def test_missing_card_and_damaged_file(saved):
    cfg, model, path = saved
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="damaged"):
        load_weights(model, path, model_identity(cfg))
    card_path(path).unlink()
    with pytest.raises(UserError, match="description of the weights not found"):
        load_weights(model, path, model_identity(cfg))
    path.unlink()
    with pytest.raises(UserError, match=f"^Weights not found: {path}$"):
        model_from_weights(path)


@pytest.mark.parametrize("name", ["mine", "mine.weights.h5"])
def test_the_suffix_is_added_once(make_cfg, name):
    cfg = make_cfg(MODEL={"WEIGHTS_FILE_NAME": name})
    assert weights_path(cfg).name == "mine.weights.h5"

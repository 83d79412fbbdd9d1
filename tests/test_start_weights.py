"""Where training starts: ImageNet encoders, checkpoints of this and other variants, refusals."""

import logging

import keras
import numpy as np
import pytest

from callbacks.run_state import read_states
from models.backbones import ENCODERS, build_encoder, encoder_kernels, scale_input
from models.blocks import UnitSettings
from models.from_weights import layers_from_weights
from models.h5_layers import set_layers
from models.model import inference_view, model_identity, prepare_model, weights_path
from models.start_weights import StartWeights, find_start_weights
from models.unet3plus import build_unet3plus
from models.vgg_weights import read_vgg_weights
from models.weights import card_path, load_weights, save_weights
from tests.conftest import merged
from tests.legacy_files import predecessor, write_legacy_weights
from tests.test_models import randomise
from train import train
from utils.config import validate_config
from utils.config_rules import IMAGENET_FILTERS
from utils.errors import UserError
from utils.paths import read_json, write_json

APPLICATIONS = {"vgg16": keras.applications.vgg16, "vgg19": keras.applications.vgg19}
NOTOP = "{}_weights_tf_dim_ordering_tf_kernels_notop.h5"
WIDE = [*IMAGENET_FILTERS, 1024]
NARROW = (4, 6, 8, 10, 20)


def vgg_network(kind):
    build = getattr(APPLICATIONS[kind], kind.upper())
    network = build(weights=None, include_top=False, input_shape=(32, 32, 3))
    rng = np.random.default_rng(3)
    for layer in network.layers:
        if layer.weights:
            layer.bias.assign(rng.normal(0, 1, layer.bias.shape))
    return network


@pytest.fixture(scope="module", params=["vgg16", "vgg19"])
def notop(request, tmp_path_factory):
    """Kind, network and file of a VGG network as Keras distributes them."""
    network = vgg_network(request.param)
    path = tmp_path_factory.mktemp("keras") / NOTOP.format(request.param)
    if request.param == "vgg16":
        write_legacy_weights(path, network)
    else:
        network.save(path)  # Keras's own writer of the old layout, configuration included
    return request.param, network, path


def scaled_encoder(kind):
    image = keras.Input((32, 32, 3))
    features = build_encoder(scale_input(image, "imagenet"), kind, WIDE, UnitSettings())
    return keras.Model(image, features)


def test_features_are_those_of_keras_on_preprocessed_images(notop):
    kind, network, path = notop
    encoder = scaled_encoder(kind)
    set_layers(encoder, read_vgg_weights(path, kind))
    rgb = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype(np.float32)
    last = [f"block{n}_conv{k}" for n, k in enumerate(ENCODERS[kind].convolutions, start=1)]
    theirs = keras.Model(network.input, [network.get_layer(name).output for name in last])
    expected = theirs(APPLICATIONS[kind].preprocess_input(rgb.copy()))
    for level, (ours, value) in enumerate(zip(encoder(rgb / 255), expected, strict=True), start=1):
        scale = np.abs(value).max()
        np.testing.assert_allclose(ours / scale, value / scale, rtol=0, atol=1e-4, err_msg=level)
        assert scale > 0.1


def test_the_scaling_is_part_of_the_graph_but_not_of_weight_files(tmp_path):
    plain, scaled = (
        build_unet3plus(
            backbone="vgg16", input_shape=(32, 32, 3), filters=NARROW, input_scaling=scaling
        )
        for scaling in ("none", "imagenet")
    )
    plain.save_weights(tmp_path / "plain.weights.h5")
    scaled.load_weights(tmp_path / "plain.weights.h5")
    for ours, theirs in zip(scaled.weights, plain.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    scaling = scaled.get_layer("imagenet_scaling")
    np.testing.assert_allclose(
        scaling(np.float32([[[[0, 0.5, 1]]]]))[0, 0, 0], [-123.68, 10.721, 151.061], rtol=1e-5
    )
    image = np.random.default_rng(0).random((1, 32, 32, 3)).astype(np.float32)
    expected = scaled(image)["d1"]
    assert np.abs(expected - plain(image)["d1"]).max() > 1e-3
    np.testing.assert_allclose(inference_view(scaled)(image), expected, atol=1e-4)
    scaled.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(image)["d1"], expected)


def test_unknown_scaling():
    with pytest.raises(ValueError, match="a scaling out of .*none.*imagenet.*, received 'caffe'"):
        build_unet3plus(filters=NARROW, input_scaling="caffe")


def wide(make_cfg, weights, kind="vgg19", **changes):
    backbone = {"TYPE": kind, "WEIGHTS": str(weights)}
    return make_cfg(MODEL={"FILTERS": WIDE, "BACKBONE": backbone}, **changes)


def test_a_network_starts_with_the_given_encoder(make_cfg, notop):
    kind, network, path = notop
    cfg = wide(make_cfg, path, kind)
    model = prepare_model(cfg)
    start = find_start_weights(cfg)
    start.load(model)
    encoder = [name for name, _ in encoder_kernels(kind, WIDE, 3)]
    facts = start.state()
    assert facts["key"] == "MODEL.BACKBONE.WEIGHTS"
    assert facts["taken"] == encoder
    assert facts["left_in_the_file"] == []
    assert {"dec4_from1_conv", "dec1_bn", "head1_conv"} <= set(facts["started_at_random"])
    first = network.get_layer("block1_conv1").kernel.numpy()
    np.testing.assert_array_equal(model.get_layer("block1_conv1").kernel, first[:, :, ::-1])
    np.testing.assert_array_equal(
        model.get_layer("block5_conv3").kernel, network.get_layer("block5_conv3").kernel
    )
    assert model_identity(cfg)["input_scaling"] == "imagenet"


def test_without_internet_the_message_says_what_to_do(make_cfg, monkeypatch):
    def refuse(name, url, **_):
        raise Exception(f"URL fetch failure on {url}: None -- Name or service not known")

    monkeypatch.setattr(keras.utils, "get_file", refuse)
    with pytest.raises(UserError) as error:
        find_start_weights(wide(make_cfg, "imagenet"))
    for part in ("MODEL.BACKBONE.WEIGHTS", "storage.googleapis.com", NOTOP.format("vgg19")):
        assert part in str(error.value)


def test_the_file_must_be_of_this_encoder_and_without_the_top(make_cfg, notop, tmp_path):
    kind, network, path = notop
    other = {"vgg16": "vgg19", "vgg19": "vgg16"}[kind]
    with pytest.raises(UserError, match=f"is not Keras's {other} without the top .*"):
        find_start_weights(wide(make_cfg, path, other))
    old = predecessor("unet3plus", kind, (32, 32, 3), 2, NARROW)
    old_file = write_legacy_weights(tmp_path / "old.h5", old)
    with pytest.raises(UserError, match="conv2d.*expected none"):
        find_start_weights(wide(make_cfg, old_file, kind))


@pytest.fixture
def saved(make_cfg):
    """A maker of checkpoints: changes of the configuration -> network and path."""

    def save(name="start", **changes):
        cfg = make_cfg(**changes)
        model = prepare_model(cfg)
        randomise(model, seed=5)
        path = weights_path(cfg).with_name(f"{name}.weights.h5")
        save_weights(model, path, model_identity(cfg))
        return model, path

    return save


HEADS = ["head1_conv", "head2_conv", "head3_conv", "head4_conv", "head5_conv"]
DEEP, CGM = "unet3plus_deepsup", "unet3plus_deepsup_cgm"


@pytest.mark.parametrize(
    ("before", "classes_before", "after", "classes_after", "new", "left"),
    [
        ("unet3plus", 2, DEEP, 2, HEADS[1:], []),
        (DEEP, 1, CGM, 1, ["cgm_conv"], []),
        (CGM, 2, CGM, 3, HEADS, HEADS),
        (DEEP, 2, "unet3plus", 2, [], HEADS[1:]),
    ],
)
def test_encoder_and_decoder_are_taken_and_heads_that_fit(
    make_cfg, saved, caplog, before, classes_before, after, classes_after, new, left
):
    source, path = saved(MODEL={"TYPE": before}, OUTPUT={"CLASSES": classes_before})
    cfg = make_cfg(MODEL={"TYPE": after, "WEIGHTS": str(path)}, OUTPUT={"CLASSES": classes_after})
    model = prepare_model(cfg)
    start = find_start_weights(cfg)
    with caplog.at_level(logging.INFO, "unet3plus"):
        start.load(model)
    facts = start.state()
    assert sorted(facts["started_at_random"]) == sorted(new)
    assert sorted(facts["left_in_the_file"]) == sorted(left)
    for name in facts["taken"]:
        for ours, theirs in zip(
            model.get_layer(name).weights, source.get_layer(name).weights, strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
    total = len([layer for layer in model.layers if layer.weights])
    messages = [record.getMessage() for record in caplog.records]
    assert f"MODEL.WEIGHTS: {total - len(new)} of {total} layers from {path}" in messages
    assert all(any(name in message for message in messages) for name in [*new, "enc5_bn2"])


def test_only_the_encoder_of_a_checkpoint(make_cfg, saved):
    source, path = saved(MODEL={"TYPE": DEEP})
    cfg = make_cfg(MODEL={"BACKBONE": {"WEIGHTS": str(path)}}, OUTPUT={"CLASSES": 3})
    model = prepare_model(cfg)
    before = model.get_layer("dec4_conv").kernel.numpy()
    start = find_start_weights(cfg)
    start.load(model)
    assert len(start.state()["taken"]) == 20
    np.testing.assert_array_equal(
        model.get_layer("enc5_bn2").moving_variance, source.get_layer("enc5_bn2").moving_variance
    )
    np.testing.assert_array_equal(model.get_layer("dec4_conv").kernel, before)


def card_only(folder, cfg):
    """A checkpoint that is never opened, as its card says enough."""
    path = folder / "other.weights.h5"
    path.touch()
    write_json(card_path(path), model_identity(cfg))
    return path


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"MODEL": {"BACKBONE": {"TYPE": "vgg16"}}}, "MODEL.BACKBONE.TYPE: found 'vgg16'"),
        ({"MODEL": {"FILTERS": [4, 4, 8, 8, 9]}}, "MODEL.FILTERS"),
        ({"INPUT": {"CHANNELS": 1}}, "INPUT.CHANNELS: found 1"),
        ({"MODEL": {"BATCH_NORM": {"EPSILON": 1e-3}}}, "MODEL.BATCH_NORM.EPSILON: found 0.001"),
    ],
)
@pytest.mark.parametrize("key", ["MODEL.WEIGHTS", "MODEL.BACKBONE.WEIGHTS"])
def test_other_networks_are_refused(make_cfg, tmp_path, changes, part, key):
    path = card_only(tmp_path, make_cfg())
    section = {"WEIGHTS": str(path)}
    section = section if key == "MODEL.WEIGHTS" else {"BACKBONE": section}
    cfg = make_cfg(**merged(changes, {"MODEL": section}))
    with pytest.raises(UserError, match=f"{key}: .*belongs to another network") as error:
        find_start_weights(cfg)
    assert part in str(error.value)


def test_an_encoder_from_imagenet_is_not_mistaken_for_another(make_cfg, tmp_path):
    kind = "vgg16"
    checkpoint = card_only(tmp_path, wide(make_cfg, "imagenet", kind))
    with pytest.raises(UserError, match="by MODEL.WEIGHTS, together with MODEL.BACKBONE.WEIGHTS="):
        find_start_weights(wide(make_cfg, checkpoint, kind))
    plain = {"FILTERS": WIDE, "BACKBONE": {"TYPE": kind}, "WEIGHTS": str(checkpoint)}
    with pytest.raises(UserError, match="BACKBONE.WEIGHTS: found 'none'; the weights need 'image"):
        find_start_weights(make_cfg(MODEL=plain))
    both = merged(plain, {"BACKBONE": {"WEIGHTS": "imagenet"}})
    find_start_weights(make_cfg(MODEL=both))  # nothing is downloaded


def test_cards_of_before_the_scaling_go_on_to_load(make_cfg, saved):
    model, path = saved()
    card = read_json(card_path(path), "card")
    assert card.pop("input_scaling") == "none"
    write_json(card_path(path), card)
    assert load_weights(model, path, model_identity(make_cfg()))["input_scaling"] == "none"


def test_the_predecessors_file_starts_training_as_it_is(make_cfg, tmp_path):
    old = predecessor("unet3plus", "unet3plus", (32, 32, 3), 2, (4, 4, 8, 8, 8))
    path = write_legacy_weights(tmp_path / "old.hdf5", old)
    with pytest.raises(UserError, match="EPSILON: found 1e-05; the weights need 0.001"):
        find_start_weights(make_cfg(MODEL={"WEIGHTS": str(path)}))
    cfg = make_cfg(MODEL={"WEIGHTS": "old.hdf5", "BATCH_NORM": {"EPSILON": 1e-3}, "TYPE": DEEP})
    start = find_start_weights(cfg)
    start.load(prepare_model(cfg))
    assert start.state()["started_at_random"] == HEADS[1:]


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ({"WEIGHTS": "nothing.weights.h5"}, "MODEL.WEIGHTS: no weights at .*nothing.weights.h5"),
        ({"BACKBONE": {"WEIGHTS": "x.hdf5", "TYPE": "vgg16"}, "FILTERS": WIDE}, "BACKBONE.WEIGHTS"),
    ],
)
def test_missing_files_are_noticed_before_the_data_are_read(make_cfg, model, part):
    with pytest.raises(UserError, match=part):
        train(make_cfg(MODEL=model))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"MODEL": {"WEIGHTS": "model.keras"}},
            "MODEL.WEIGHTS: found 'model.keras'; expected null",
        ),
        ({"MODEL": {"WEIGHTS": "imagenet"}}, "MODEL.WEIGHTS: found 'imagenet'"),
        ({"MODEL": {"BACKBONE": {"WEIGHTS": "imagnet"}}}, "expected null, imagenet, a weight file"),
        (
            {"MODEL": {"BACKBONE": {"WEIGHTS": "imagenet", "TYPE": "unet3plus"}}},
            "vgg16 and vgg19 only",
        ),
        ({"INPUT": {"CHANNELS": 1}}, "INPUT.CHANNELS: found 1"),
        ({"MODEL": {"FILTERS": [32, 64, 128, 256, 512]}}, "needs [64, 128, 256, 512]"),
    ],
)
def test_settings_that_cannot_work(changes, part):
    with pytest.raises(UserError) as error:
        validate_config(merged({"MODEL": {"BACKBONE": {"WEIGHTS": "imagenet"}}}, changes))
    assert part in str(error.value)


def test_training_starts_there_and_a_resumed_run_goes_on_with_its_own(
    make_cfg, saved, slices, caplog
):
    _, path = saved("first", MODEL={"TYPE": DEEP})
    changes = {"MODEL": {"WEIGHTS": str(path)}}
    changes["HYPER_PARAMETERS"] = {"EPOCHS": 1, "LEARNING_RATE": 1e-12}
    result = train(make_cfg(**changes))
    facts = result["start_weights"]
    assert facts["file"] == str(path)
    assert facts["left_in_the_file"] == HEADS[1:]
    trained, start = (layers_from_weights(p) for p in (weights_path(make_cfg()), path))
    np.testing.assert_allclose(trained["head1_conv"][0], start["head1_conv"][0], atol=1e-6)
    state = read_states(weights_path(make_cfg()).with_name("model_unet3plus_state"))[0]
    assert state["parts"]["start"] == facts

    path.unlink()
    with caplog.at_level(logging.INFO, "unet3plus"):
        again = train(make_cfg(RESUME=True, **changes))
    assert "MODEL.WEIGHTS: not read, the run to RESUME has weights of its own" in caplog.messages
    assert again["epochs"] == 1
    restored = StartWeights()
    restored.restore(facts)
    assert restored.state() == facts

"""The network: parameter counts, wiring against an independent version, heads, gate, targets."""

import itertools

import keras
import numpy as np
import pytest

from models.backbones import ENCODERS
from models.heads import ClassificationGate
from models.model import compile_model, inference_view, prepare_model
from models.unet3plus import HEADS, VARIANTS, build_unet3plus
from tests.straight_unet3plus import straight_unet3plus
from utils.runtime import setup_runtime

NARROW = (4, 6, 8, 10, 12)
ALL_NINE = list(itertools.product(VARIANTS, ENCODERS))
OUTPUTS = {
    "unet3plus": ["d1"],
    "unet3plus_deepsup": list(HEADS),
    "unet3plus_deepsup_cgm": [*HEADS, "presence"],
}
# Golden counts with CLASSES=2 and 3 channels: those of the paper's graph with biases. The module
# adds a 1x1 convolution from the deepest feature to two channels.
COUNTS = {
    "unet3plus": {"unet3plus": 26_987_714, "vgg16": 21_663_682, "vgg19": 26_973_378},
    "unet3plus_deepsup": {"unet3plus": 27_023_434, "vgg16": 21_690_186, "vgg19": 26_999_882},
    "unet3plus_deepsup_cgm": {
        "unet3plus": 27_023_434 + 1024 * 2 + 2,
        "vgg16": 21_690_186 + 512 * 2 + 2,
        "vgg19": 26_999_882 + 512 * 2 + 2,
    },
}


def randomise(model: keras.Model, seed: int) -> None:
    """Weights that make every layer matter, moving statistics included."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        spread = 1.0 / np.sqrt(max(np.prod(weight.shape[:-1]), 1))
        value = rng.normal(0, spread, weight.shape)
        if "gamma" in weight.path or "variance" in weight.path:
            value = rng.uniform(0.5, 1.5, weight.shape)
        weight.assign(value)


@pytest.mark.parametrize(("variant", "backbone"), ALL_NINE)
def test_golden_parameter_counts(make_cfg, variant, backbone):
    wide = {"TYPE": variant, "BACKBONE": {"TYPE": backbone}, "FILTERS": [64, 128, 256, 512, 1024]}
    model = prepare_model(make_cfg(MODEL=wide))
    assert model.count_params() == COUNTS[variant][backbone]


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize(("variant", "backbone"), ALL_NINE)
def test_outputs_equal_the_straight_line_version(variant, backbone, classes):
    shape = (48, 64, 3)
    model = build_unet3plus(variant, backbone, shape, classes, NARROW)
    straight = straight_unet3plus(variant, backbone, shape, classes, NARROW)
    randomise(model, seed=VARIANTS.index(variant))
    if "cgm" in variant:
        model.get_layer("cgm_conv").bias.assign([-9, 9])  # present; the gate has a test of its own
    for layer in straight.layers:
        if layer.weights:
            layer.set_weights(model.get_layer(layer.name).get_weights())
    image = np.random.default_rng(7).random((3, *shape)).astype(np.float32)
    expected, outputs = straight(image), model(image)
    assert list(outputs) == OUTPUTS[variant]
    for name, value in outputs.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5, err_msg=name)
        if name != "presence":
            assert value.shape == (3, 48, 64, classes)
            assert np.ptp(value) > 0.01  # not saturated: the comparison means something


def test_layer_names_are_those_weights_are_mapped_by():
    names = {
        layer.name for layer in build_unet3plus(VARIANTS[2], "unet3plus", filters=NARROW).layers
    }
    expected = {
        f"enc{level}_{kind}{k}" for level in range(1, 6) for kind in ("conv", "bn") for k in (1, 2)
    }
    for level in range(1, 5):
        expected |= {f"dec{level}_from{s}_{kind}" for s in range(1, 6) for kind in ("conv", "bn")}
        expected |= {f"dec{level}_concat", f"dec{level}_conv", f"dec{level}_bn"}
    expected |= {f"head{level}_conv" for level in range(1, 6)} | {"cgm_conv"}
    assert expected <= names


def test_vgg_layers_are_those_of_keras_applications():
    ours = build_unet3plus(backbone="vgg19", input_shape=(32, 32, 3))
    theirs = keras.applications.VGG19(weights=None, include_top=False, input_shape=(32, 32, 3))
    for layer in theirs.layers:
        if layer.weights:
            shapes = [weight.shape for weight in ours.get_layer(layer.name).weights]
            assert shapes == [weight.shape for weight in layer.weights], layer.name


def test_layers_of_one_shape_start_different():
    model = build_unet3plus(filters=NARROW, input_shape=(16, 16, 3))
    kernels = [model.get_layer(f"dec{level}_conv").kernel.numpy() for level in (1, 2, 3, 4)]
    for one, other in itertools.combinations(kernels, 2):
        assert np.abs(one - other).max() > 1e-3


def test_unknown_size_and_other_channels():
    model = build_unet3plus("unet3plus_deepsup_cgm", "vgg16", (None, None, 8), 1, NARROW)
    assert model(np.zeros((1, 32, 16, 8)))["d1"].shape == (1, 32, 16, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "unet"}, "variant out of unet3plus, "),
        ({"backbone": "resnet"}, "backbone out of unet3plus, vgg16, vgg19"),
        ({"filters": (1, 2)}, "5 filters, received 2"),
        ({"variant": "unet3plus_deepsup_cgm", "cgm_gate": "never"}, "'inference' or 'always'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_unet3plus(**{"filters": NARROW, **arguments})


PRESENT, ABSENT, TIE = [0.2, 0.9], [0.6, 0.4], [0.5, 0.5]


@pytest.mark.parametrize("presence", [PRESENT, ABSENT, TIE])
@pytest.mark.parametrize(
    ("probabilities", "background"), [([0.7], [0.0]), ([0.1, 0.6, 0.3], [1.0, 0.0, 0.0])]
)
def test_gate_empties_slices_exactly_and_leaves_the_others(probabilities, background, presence):
    maps = np.tile(np.float32(probabilities), (1, 2, 3, 1))
    inputs = [maps, np.float32([presence])]
    expected = maps if presence is PRESENT else np.tile(np.float32(background), (1, 2, 3, 1))
    np.testing.assert_array_equal(ClassificationGate("inference")(inputs), expected)
    np.testing.assert_array_equal(ClassificationGate("inference")(inputs, training=True), maps)
    np.testing.assert_array_equal(ClassificationGate("always")(inputs, training=True), expected)


def test_one_mask_becomes_the_target_of_every_head():
    model = build_unet3plus("unet3plus_deepsup_cgm", "unet3plus", (16, 16, 3), 3, NARROW)
    mask = np.zeros((2, 16, 16), np.uint8)
    mask[1, 3, 4], mask[1, 5, 6] = 1, 2
    targets = {name: np.array(value) for name, value in model.targets(mask).items()}
    assert list(targets) == OUTPUTS["unet3plus_deepsup_cgm"]
    for head in HEADS:
        np.testing.assert_array_equal(targets[head], np.eye(3)[mask])
    np.testing.assert_array_equal(targets["presence"], [[1, 0], [0, 1]])


def test_target_of_a_single_class_is_any_foreground():
    model = build_unet3plus(input_shape=(16, 16, 3), filters=NARROW)
    mask = np.uint8([[[0, 1], [2, 0]]])
    np.testing.assert_array_equal(model.targets(mask)["d1"][..., 0], [[[0, 1], [1, 0]]])


@pytest.mark.parametrize(
    ("variant", "classes", "amp", "xla"),
    [
        ("unet3plus", 2, False, False),
        ("unet3plus_deepsup", 3, False, False),
        ("unet3plus_deepsup_cgm", 1, False, False),
        ("unet3plus_deepsup_cgm", 2, True, True),
    ],
)
def test_every_variant_trains(make_cfg, variant, classes, amp, xla):
    cfg = make_cfg(
        MODEL={"TYPE": variant},
        OUTPUT={"CLASSES": classes},
        OPTIMIZATION={"AMP": amp, "XLA": xla},
        HYPER_PARAMETERS={"LEARNING_RATE": 5e-3},
    )
    try:
        runtime = setup_runtime(cfg)
        model = prepare_model(cfg)
        compile_model(model, cfg, runtime)
        mask = np.zeros((4, 32, 32), np.uint8)
        mask[:3, 8:24, 8:24] = 1
        image = np.repeat(mask[..., None], 3, axis=-1).astype(np.float32)
        history = model.fit(image, mask, batch_size=4, epochs=4, verbose=0).history
        outputs = model(image, training=False)
    finally:
        keras.config.set_dtype_policy("float32")
    assert history["loss"][-1] < history["loss"][0]
    assert {"dice_coef", "focal", "ms_ssim", "iou"} <= set(history)
    assert all(value.dtype == "float32" for value in outputs.values())


def test_classifier_and_segmentation_learn_in_one_step(make_cfg):
    cfg = make_cfg(MODEL={"TYPE": "unet3plus_deepsup_cgm"})
    model = prepare_model(cfg)
    compile_model(model, cfg, setup_runtime(cfg))
    before = {w.path: w.numpy() for w in model.trainable_weights}
    mask = np.zeros((4, 32, 32), np.uint8)
    mask[:2, 8:24, 8:24] = 1
    image = np.random.default_rng(0).random((4, 32, 32, 3)).astype(np.float32)
    model.train_on_batch(image, mask)
    unmoved = [w.path for w in model.trainable_weights if (w.numpy() == before[w.path]).all()]
    assert unmoved == []


def test_l2_acts_on_kernels_of_units_only(make_cfg):
    model = prepare_model(make_cfg(MODEL={"L2": 0.5, "BACKBONE": {"TYPE": "vgg16"}}))
    kernels = [
        layer.kernel
        for layer in model.layers
        if layer.name.startswith("dec") and "conv" in layer.name
    ]
    expected = 0.5 * sum(float((kernel.numpy() ** 2).sum()) for kernel in kernels)
    assert float(sum(model.losses)) == pytest.approx(expected, rel=1e-5)


def test_inference_view_is_the_main_head(make_cfg):
    model = prepare_model(make_cfg(MODEL={"TYPE": "unet3plus_deepsup_cgm"}))
    view = inference_view(model)
    image = np.random.default_rng(0).random((2, 32, 32, 3)).astype(np.float32)
    np.testing.assert_allclose(view.predict(image, verbose=0), model(image)["d1"], atol=1e-6)
    assert view.jit_compile is False


def test_a_saved_model_comes_back(tmp_path):
    model = build_unet3plus("unet3plus_deepsup_cgm", "vgg16", (32, 32, 3), 2, NARROW)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    image = np.random.default_rng(0).random((1, 32, 32, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded(image)["d1"], model(image)["d1"])
    assert type(loaded) is type(model)

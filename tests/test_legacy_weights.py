"""Weights of NVIDIA's UNet3P folder give the same masks here, and anything else is refused."""

import subprocess
import sys
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from models.from_weights import model_from_weights
from models.legacy_weights import convert, read_legacy_weights
from models.model import model_identity, prepare_model
from models.unet3plus import HEADS, VARIANTS
from models.weights import load_weights, require_weights
from tests.legacy_files import predecessor, write_legacy_weights
from tests.test_models import randomise
from utils.errors import UserError

NARROW = (4, 6, 8, 10, 20)
SHAPE = (32, 48, 3)
ROOT = Path(__file__).resolve().parents[1]


def old_network(variant="unet3plus", backbone="vgg19", classes=2, seed=0):
    model = predecessor(variant, backbone, SHAPE, classes, NARROW)
    randomise(model, seed)
    return model


@pytest.fixture(scope="module")
def old_file(tmp_path_factory):
    """Weights of an old base network on vgg19."""
    path = tmp_path_factory.mktemp("old") / "model_unet3plus.hdf5"
    return write_legacy_weights(path, old_network())


@pytest.mark.parametrize(
    ("variant", "backbone"),
    [
        ("unet3plus", "vgg19"),
        ("unet3plus", "unet3plus"),
        ("unet3plus_deepsup", "vgg16"),
        ("unet3plus_deepsup", "unet3plus"),
        ("unet3plus_deepsup_cgm", "vgg19"),
    ],
)
def test_outputs_are_those_of_the_old_network(make_cfg, tmp_path, variant, backbone):
    classes = 1 if "cgm" in variant else 2
    old = old_network(variant, backbone, classes, VARIANTS.index(variant))
    if "cgm" in variant:
        module = next(layer for layer in old.layers if getattr(layer, "kernel_size", 0) == (1, 1))
        module.bias.assign([-9, 9])  # present; what is absent is emptied to 0.5 there, to 0 here
    path = write_legacy_weights(tmp_path / "old.hdf5", old, whole_model=backbone == "vgg16")
    identity, _ = read_legacy_weights(path)
    assert identity == {
        "variant": variant,
        "backbone": backbone,
        "filters": list(NARROW),
        "classes": classes,
        "channels": 3,
        "batch_norm_epsilon": 1e-3,
        "input_scaling": "none",
    }
    network = {"TYPE": variant, "BACKBONE": {"TYPE": backbone}, "FILTERS": list(NARROW)}
    cfg = make_cfg(
        MODEL={**network, "BATCH_NORM": {"EPSILON": 1e-3}},
        INPUT={"WIDTH": SHAPE[1]},
        OUTPUT={"CLASSES": classes},
    )
    model = prepare_model(cfg)
    load_weights(model, convert(path), model_identity(cfg))
    image = np.random.default_rng(7).random((2, *SHAPE)).astype(np.float32)
    expected, found = keras.tree.flatten(old(image)), model(image)
    for name, value in zip(HEADS, expected, strict=False):
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-4, err_msg=name)
        assert np.ptp(value) > 0.01  # not saturated: the comparison means something
    assert len(expected) == len([name for name in HEADS if name in found])


def test_the_numbers_in_the_names_need_not_start_at_0(tmp_path):
    keras.layers.Conv2D(1, 1)
    old = old_network("unet3plus_deepsup")
    names = [layer.name for layer in old.layers if layer.name.startswith("conv2d")]
    assert "conv2d" not in names
    assert names != sorted(names, key=lambda name: int(name.split("_")[1]))  # sorted by depth
    layers = read_legacy_weights(write_legacy_weights(tmp_path / "old.h5", old))[1]
    first, *_, last = sorted(names, key=lambda name: int(name.split("_")[1]))
    np.testing.assert_array_equal(layers["dec4_from1_conv"][0], old.get_layer(first).kernel)
    np.testing.assert_array_equal(layers["head5_conv"][0], old.get_layer(last).kernel)


def test_long_lists_of_names_come_in_parts(tmp_path, old_file):
    with h5py.File(old_file) as file:
        names = list(file.attrs["layer_names"])
    parts = tmp_path / "parts.hdf5"
    parts.write_bytes(old_file.read_bytes())
    with h5py.File(parts, "a") as file:
        del file.attrs["layer_names"]
        file.attrs["layer_names0"], file.attrs["layer_names1"] = names[:9], names[9:]
    expected, found = read_legacy_weights(old_file), read_legacy_weights(parts)
    assert found[0] == expected[0]
    assert list(found[1]) == list(expected[1])


def test_the_converted_file_serves_without_configuration(tmp_path, old_file):
    target = convert(old_file, tmp_path / "new" / "mine.weights.h5")
    model, card = model_from_weights(target)
    assert model.input_shape == (None, 320, 320, 3)
    assert card["converted_from"] == "model_unet3plus.hdf5"
    assert card["preparation"]["hu_min"] == -200


def test_the_command(tmp_path, old_file):
    path = tmp_path / old_file.name
    path.write_bytes(old_file.read_bytes())
    with pytest.raises(UserError, match=f"or convert what is there: .*{path.name}'"):
        require_weights(path.with_suffix(".weights.h5"))
    command = [sys.executable, "-m", "models.legacy_weights", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"Converted: {path.with_suffix('.weights.h5')}",
        "Its network: MODEL.TYPE=unet3plus MODEL.BACKBONE.TYPE=vgg19 OUTPUT.CLASSES=2 "
        "INPUT.CHANNELS=3 MODEL.BATCH_NORM.EPSILON=0.001",
    ]
    with pytest.raises(UserError, match="is there already"):
        convert(path)


def drop_layer(file):
    del file["block5_conv4"]
    file.attrs["layer_names"] = [n for n in file.attrs["layer_names"] if n != b"block5_conv4"]


def narrow_kernel(file):
    layer = file["block1_conv2"]["block1_conv2"]
    values = layer["kernel:0"][()]
    del layer["kernel:0"]
    layer["kernel:0"] = values[..., :3]


def link_elsewhere(file):
    del file["block1_conv1"]
    file["block1_conv1"] = h5py.ExternalLink("other.h5", "/block1_conv1")


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (drop_layer, "not of NVIDIA's UNet3P folder: 25 convolutions and 24 batch"),
        (narrow_kernel, r"  - block1_conv2: found .*3, 3, 4, 3.*expected .*3, 3, 4, 4"),
        (link_elsewhere, "no block1_conv1 in it"),
        (lambda file: file.attrs.pop("layer_names"), "no layers in the layout of Keras 2"),
    ],
)
def test_other_files_are_refused(tmp_path, old_file, damage, part):
    path = tmp_path / "old.hdf5"
    path.write_bytes(old_file.read_bytes())
    with h5py.File(path, "a") as file:
        damage(file)
    with pytest.raises(UserError, match=part):
        convert(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["model.keras", "model.pkl", "model.weights.h5"])
def test_only_old_weight_files_are_opened(tmp_path, name):
    with pytest.raises(UserError, match="expected a file of NVIDIA's UNet3P folder"):
        convert(tmp_path / name)


def test_damaged_and_missing_files(tmp_path, old_file):
    path = tmp_path / "old.hdf5"
    with pytest.raises(UserError, match="cannot be read.*No such file"):
        convert(path)
    path.write_bytes(old_file.read_bytes()[:3000])
    with pytest.raises(UserError, match="old.hdf5 cannot be read as a Keras 2 weight file"):
        convert(path)

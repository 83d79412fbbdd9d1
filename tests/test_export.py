"""The exported network: equal to Keras's where it is served, or not there at all."""

import json

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import export as export_script
from export import export, export_checked
from models.model import inference_view, model_identity, prepare_model, weights_path
from models.weights import save_weights
from tests.markdown import code_blocks
from tests.test_models import randomise
from utils.errors import UserError


@pytest.fixture
def make_weights(make_cfg):
    """Random weights of a configuration; returns the configuration and its network."""

    def make(**changes):
        cfg = make_cfg(**changes)
        model = prepare_model(cfg)
        randomise(model, seed=1)
        save_weights(model, weights_path(cfg), model_identity(cfg), preparation={"hu_min": -200})
        return cfg, model

    return make


def serve_saved_model(path, images):
    loaded = tf.saved_model.load(str(path))  # its variables live as long as this object
    return loaded.serve(images).numpy()


def serve_onnx(path, images):
    return onnxruntime.InferenceSession(path).run(None, {"image": images})[0]


SERVERS = {"saved_model": serve_saved_model, "onnx": serve_onnx}


@pytest.mark.parametrize(
    ("variant", "classes", "batch"),
    [("unet3plus", 1, 3), ("unet3plus_deepsup_cgm", 3, None)],
)
def test_both_formats_serve_what_keras_computes(make_weights, variant, classes, batch):
    cfg, model = make_weights(
        MODEL={"TYPE": variant},
        INPUT={"HEIGHT": 32, "WIDTH": 48},
        OUTPUT={"CLASSES": classes},
        EXPORT={"BATCH_SIZE": batch},
    )
    if "cgm" in variant:
        model.get_layer("cgm_conv").bias.assign([-9, 9])  # an organ is present: the gate is open
        save_weights(model, weights_path(cfg), model_identity(cfg), preparation={"hu_min": -200})
    written = export(cfg)
    images = np.random.default_rng(9).random((batch or 5, 32, 48, 3), np.float32)
    expected = inference_view(model).predict_on_batch(images)
    assert np.ptp(expected) > 0.01
    for kind, serve in SERVERS.items():
        np.testing.assert_allclose(serve(written[kind], images), expected, rtol=0, atol=1e-4)
    description = json.loads(written["description"].read_text())
    assert description["input"]["shape"] == [batch, 32, 48, 3]
    assert description["output"]["shape"] == [batch, 32, 48, classes]
    assert description["weights"]["preparation"] == {"hu_min": -200}
    assert description["precision"] == "float32"
    assert set(description["largest_difference"]) == set(SERVERS)


def test_a_closed_gate_is_exported_too(make_weights):
    cfg, model = make_weights(MODEL={"TYPE": "unet3plus_deepsup_cgm"}, EXPORT={"FORMATS": ["onnx"]})
    model.get_layer("cgm_conv").bias.assign([9, -9])
    save_weights(model, weights_path(cfg), model_identity(cfg))
    images = np.random.default_rng(9).random((1, 32, 32, 3), np.float32)
    background = np.broadcast_to([1, 0], (1, 32, 32, 2))
    np.testing.assert_array_equal(serve_onnx(export(cfg)["onnx"], images), background)


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (lambda path: lambda images: np.full((2, 4, 4, 1), 30.0), "differs from Keras by [23]"),
        (lambda path: lambda images: np.full((2, 4, 4, 1), np.nan), "differs from Keras by nan"),
        (lambda path: lambda images: np.zeros((2, 4, 4, 2)), "differs from Keras by inf"),
        (lambda path: 1 / 0, "could not be written and loaded again .ZeroDivisionError"),
    ],
)
def test_a_wrong_file_is_not_left_and_an_older_one_stays(
    tmp_path, monkeypatch, kind, loader, message
):
    image = keras.Input((4, 4, 3))
    view = keras.Model(image, keras.layers.Conv2D(1, 1)(image))
    arguments = view, kind, tmp_path / "network", None, np.ones((2, 4, 4, 3), np.float32)
    assert export_checked(*arguments) < 1e-6
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setitem(export_script._LOADERS, kind, loader)
    with pytest.raises(UserError, match=f"EXPORT.FORMATS: {kind} .*{message}"):
        export_checked(*arguments)
    assert sorted(tmp_path.rglob("*")) == before


def test_mistakes_are_found_before_anything_is_written(make_cfg, make_weights, monkeypatch):
    with pytest.raises(UserError, match="no weights at"):
        export(make_cfg())
    cfg, _ = make_weights()
    monkeypatch.setattr(export_script, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"onnx needs tf2onnx, onnx, onnxruntime: 'pip install -r"):
        export(cfg)
    assert not (weights_path(cfg).parents[1] / "export").exists()


def test_the_lines_of_the_readme_serve_both(make_weights, monkeypatch):
    cfg, model = make_weights()
    export(cfg)
    monkeypatch.chdir(cfg.WORK_DIR)
    (lines,) = [code for code in code_blocks("README.md", "python") if "onnxruntime" in code]
    served: dict = {}
    exec(lines.replace("320, 320", "32, 32"), served)
    expected = inference_view(model).predict_on_batch(served["images"])
    for result in ("from_saved_model", "from_onnx"):
        np.testing.assert_allclose(served[result], expected, rtol=0, atol=1e-4)

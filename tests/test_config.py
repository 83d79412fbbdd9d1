"""The configuration: defaults, types, choices, rules, and one message for all problems."""

import dataclasses

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ReadonlyConfigError

from configs import CONFIG_DIR
from configs.schema import Config
from utils.config import validate_config
from utils.errors import UserError


def test_defaults_are_valid_typed_and_read_only():
    cfg = validate_config({})
    assert cfg.MODEL.TYPE == "unet3plus"
    assert cfg.MODEL.WEIGHTS_FILE_NAME == "model_unet3plus"
    assert cfg.HYPER_PARAMETERS.LEARNING_RATE == 5e-5
    assert cfg.DATA_PREPARATION.RESIZED_HEIGHT == cfg.INPUT.HEIGHT == 320
    with pytest.raises(ReadonlyConfigError):
        cfg.SEED = 1


def test_partial_config_takes_the_rest_from_the_yaml_and_interpolates():
    cfg = validate_config({"MODEL": {"TYPE": "unet3plus_deepsup"}, "INPUT": {"HEIGHT": 64}})
    assert cfg.MODEL.WEIGHTS_FILE_NAME == "model_unet3plus_deepsup"
    assert cfg.DATA_PREPARATION.RESIZED_HEIGHT == 64
    assert cfg.MODEL.BACKBONE.TYPE == "vgg19"


@pytest.mark.parametrize("text", ["None", "none", None])
def test_none_is_null(text):
    assert validate_config(nested("DATASET.VAL.MASK_PATH", text)).DATASET.VAL.MASK_PATH is None
    assert validate_config(nested("MODEL.BACKBONE.WEIGHTS", text)).MODEL.BACKBONE.WEIGHTS is None


def test_none_stays_where_it_is_a_choice():
    assert (
        validate_config(nested("USE_MULTI_GPUS.CLUSTER", "none")).USE_MULTI_GPUS.CLUSTER == "none"
    )


def test_a_checked_config_passes_unchanged():
    cfg = validate_config({})
    assert validate_config(cfg) is cfg


def test_every_key_of_the_yaml_is_in_the_schema_and_the_other_way_round():
    def schema_keys(schema):
        return {
            field.name: schema_keys(field.type) if dataclasses.is_dataclass(field.type) else None
            for field in dataclasses.fields(schema)
        }

    def yaml_keys(values, schema):
        return {
            key: yaml_keys(value, schema[key]) if isinstance(schema.get(key), dict) else None
            for key, value in values.items()
            if key not in ("defaults", "hydra")
        }

    yaml = OmegaConf.to_container(OmegaConf.load(CONFIG_DIR / "config.yaml"), resolve=False)
    assert yaml_keys(yaml, schema_keys(Config)) == schema_keys(Config)


@pytest.mark.parametrize(
    "recipe", sorted((CONFIG_DIR / "experiment").glob("*.yaml")), ids=lambda path: path.stem
)
def test_recipes_are_valid(recipe):
    validate_config(OmegaConf.load(recipe))


def nested(key: str, value: object) -> dict:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


BAD_VALUES = [
    ("MODEL.TYPE", "unet3plus_deepsub", ["choices:", "did you mean unet3plus_deepsup"]),
    ("MODEL.TYP", "unet3plus", ["unknown key", "did you mean MODEL.TYPE?"]),
    ("EPOCHS", 3, ["unknown key", "HYPER_PARAMETERS.EPOCHS"]),
    ("SEED", "abc", ["expected int"]),
    ("PREPROCESS_DATA.RESIZE.VALUE", "perhaps", ["expected bool"]),
    ("OPTIMIZATION.AMP", "maybe", ["choices: True, False, auto"]),
    ("VERBOSE", 3, ["choices: 0, 1, 2"]),
    ("HYPER_PARAMETERS.BATCH_SIZE", 0, ["expected at least 1"]),
    ("HYPER_PARAMETERS.STEPS_PER_EPOCH", 0, ["expected at least 1"]),
    ("MODEL.CGM.DROPOUT", 1.0, ["expected from 0 to 0.99"]),
    ("MODEL.FILTERS", [64, 128, 256, 512, 0], ["expected at least 1"]),
    ("MODEL.FILTERS", [64, 128], ["found 2 values; expected 5"]),
    ("LOSS.DEEP_SUPERVISION_WEIGHTS", [1.0], ["found 1 values; expected 5"]),
    ("INPUT.HEIGHT", 40, ["multiple of 16: 32 or 48"]),
    ("INPUT.WIDTH", 200, ["multiple of 16: 192 or 208"]),
    ("INPUT.HEIGHT", 8, ["expected at least 16"]),
    ("DATA_PREPARATION.SCAN_MAX_VALUE", -200, ["must be above SCAN_MIN_VALUE=-200"]),
    ("DATA_PREPARATION.LABELS", "liver_and_tumour", ["OUTPUT.CLASSES: found 2", "=3"]),
    ("DATA_PREPARATION.AXIS_CODES", {28: "LAX"}, ["AXIS_CODES.28: found 'LAX'", "RAS"]),
    ("DATASET.TRAIN.IMAGES_PATH", None, ["expected a folder, a list of files or a text file"]),
    ("DATASET.VAL.MASK_PATH", [1], ["expected a folder, a list of files or a text file"]),
    ("DATASET.TRAIN.EMPTY_SLICES", 1.1, ["expected from 0 to 1"]),
    ("DATASET.VAL.EMPTY_SLICES", 0.5, ["unknown key", "DATASET.TRAIN.EMPTY_SLICES"]),
    ("DATASET.SPLIT.VAL_FRACTION", 1.0, ["expected from 0 to 0.99"]),
    ("DATASET.SPLIT.FOLDS", 1, ["found 1; expected 2 or more"]),
    ("DATASET.SPLIT", {"FOLDS": 3, "FOLD": 3}, ["FOLD: found 3", "expected 0 to 2"]),
    ("DATASET.SPLIT", {"FOLDS": 3, "VAL_CASES": [1]}, ["found VAL_CASES and FOLDS; set one"]),
    ("AUGMENTATION.ROTATION", 181, ["expected from 0 to 180"]),
    ("AUGMENTATION.SCALE", [1.1, 0.9], ["found [1.1, 0.9]; expected [least, greatest]"]),
    ("AUGMENTATION.SCALE", [0, 1], ["expected from 0.1 to 10"]),
    ("AUGMENTATION.CONTRAST", [1], ["found [1.0]; expected [least, greatest]"]),
    ("AUGMENTATION.ELASTIC", {"AMPLITUDE": 9, "GRID": 20}, ["AMPLITUDE: found 9; more than", "8"]),
    ("EVALUATION.SPLIT", "held_out", ["found held_out; set DATASET.SPLIT"]),
    ("USE_MULTI_GPUS.GPU_IDS", [1, 1], ["quoted list of different ids"]),
    ("USE_MULTI_GPUS.GPU_IDS", "[4,5,7]", ["quoted list of different ids"]),
    ("USE_MULTI_GPUS.GPU_IDS", 0, ["expected -1 (all)"]),
    ("EXPORT.FORMATS", ["tflite"], ["found ['tflite']; expected a list of saved_model, onnx"]),
    ("EXPORT.FORMATS", [], ["one or more of saved_model, onnx"]),
    ("HYPER_PARAMETERS.OPTIMIZER", "adan", ["choices: adam, adamw, sgd", "did you mean adam"]),
    ("HYPER_PARAMETERS.OPTIMIZER", "adamw", ["WEIGHT_DECAY: found 0", "0.01 is usual"]),
    ("HYPER_PARAMETERS.WEIGHT_DECAY", 0.1, ["found 0.1; OPTIMIZER=adam has no weight decay"]),
    ("HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE.TYPE", "linear", ["choices: constant, cosine"]),
    ("HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE.WARMUP_EPOCHS", 100, ["below", "EPOCHS=100"]),
    ("HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE.FINAL_FRACTION", 2, ["expected from 0 to 1"]),
    ("HYPER_PARAMETERS.CLIP_NORM", 0, ["expected at least"]),
    ("HYPER_PARAMETERS.GRADIENT_ACCUMULATION", 0, ["expected at least 1"]),
    ("HYPER_PARAMETERS.EMA", 1.0, ["HYPER_PARAMETERS.EMA: found 1.0; expected from 0"]),
    ("CALLBACKS.TENSORBOARD.IMAGES", -1, ["expected at least 0"]),
    ("MODEL", 3, ["MODEL: found 3; expected a section"]),
]


@pytest.mark.parametrize(("key", "value", "parts"), BAD_VALUES)
def test_bad_values_name_key_value_and_remedy(key, value, parts):
    with pytest.raises(UserError) as error:
        validate_config(nested(key, value))
    for part in [*parts, key.split(".")[0] if "=3" not in parts else "OUTPUT"]:
        assert part in str(error.value)


def test_rules_on_several_keys():
    with pytest.raises(UserError, match="all switched off"):
        validate_config({"LOSS": {key: {"ENABLED": False} for key in ("FOCAL", "MS_SSIM", "IOU")}})
    with pytest.raises(UserError, match="RESIZE.HEIGHT: found 64.*INPUT.HEIGHT=320"):
        validate_config({"PREPROCESS_DATA": {"RESIZE": {"VALUE": True, "HEIGHT": 64}}})


def test_elastic_augmentation_is_not_for_dali():
    changes = {"ENABLED": True, "ELASTIC": {"AMPLITUDE": 5}}
    with pytest.raises(UserError, match="ELASTIC.AMPLITUDE: found 5; DALI_GENERATOR cannot"):
        validate_config({"AUGMENTATION": changes, "DATA_GENERATOR_TYPE": "DALI_GENERATOR"})
    validate_config({"AUGMENTATION": changes})


def test_all_problems_come_at_once():
    with pytest.raises(UserError) as error:
        validate_config({"SEDD": 1, "SEED": "a", "MODEL": {"TYPE": "x"}, "INPUT": {"WIDTH": 17}})
    message = str(error.value)
    assert "(4)" in message
    for part in ("SEDD", "MODEL.TYPE", "INPUT.WIDTH: found 17", "SEED: found 'a'"):
        assert part in message


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("False", False), (False, False)])
def test_booleans_written_as_words(text, value):
    assert (
        validate_config(nested("PREPROCESS_DATA.RESIZE.VALUE", text)).PREPROCESS_DATA.RESIZE.VALUE
        is value
    )

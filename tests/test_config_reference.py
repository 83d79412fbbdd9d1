"""configs/README.md: complete, current, and right about who reads a key."""

import pytest

from utils.config_readers import is_read, paths_read
from utils.config_reference import CHECKS, REFERENCE, config_keys, render

KEYS = {".".join(key.path): key for key in config_keys()}


def test_the_committed_file_is_current():
    assert REFERENCE.read_text(encoding="utf-8") == render(), "run: make docs"


@pytest.mark.parametrize(
    ("name", "kind", "default", "meaning"),
    [
        ("RESUME", "bool", "False", "True continues an interrupted run where its last"),
        ("SEED", "int, 0 to 4294967295", "5", ""),
        ("OVERWRITE", "bool", "False", "predict.py"),
        ("DATA_PREPARATION.FIT", "`resize`, `crop`", "resize", "resize | crop (centred"),
        ("DATA_PREPARATION.SCAN_MAX_VALUE", "float", "250", "HU window mapped to grey"),
        ("DATA_PREPARATION.WORKERS", "int | null, at least 1", "null", "processes; null ="),
        ("DATA_PREPARATION.AXIS_CODES", "dict of str to str", "{}", "Axis codes for cases"),
        ("DATASET.VAL.MASK_PATH", "see the meaning", "data/val/mask", "A folder, a list of"),
        ("MODEL.WEIGHTS_FILE_NAME", "str", "model_${MODEL.TYPE}", ""),
        ("MODEL.FILTERS", "list of int, at least 1", "[64, 128, 256, 512, 1024]", "Channels of"),
        ("LOSS.FOCAL.GAMMA", "float, at least 0", "2.0", "the pixel term"),
        ("OPTIMIZATION.XLA", "`True`, `False`, `auto`", "auto", "True | False | auto = on a"),
        ("EXPORT.FORMATS", "list of `saved_model`, `onnx`", "[saved_model, onnx]", "onnx needs"),
    ],
)
def test_what_is_said_of_a_key(name, kind, default, meaning):
    key = KEYS[name]
    assert (key.kind, key.default) == (kind, default)
    assert key.meaning.startswith(meaning)


SOURCE = """
def adapter(cfg, split, key):
    loss, size = cfg.LOSS, cfg.INPUT.HEIGHT
    use(loss.FOCAL.GAMMA, ratio=loss.IOU.SMOOTH)
    paths = cfg.DATASET[split]
    use(paths.IMAGES_PATH, cfg.OPTIMIZATION["AMP"], settings(cfg.PHANTOM), cfg.EXPORT.values())


def other(loss):
    return loss.TYPE
"""


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("LOSS.FOCAL.GAMMA", True),
        ("LOSS.IOU.SMOOTH", True),
        ("LOSS.TYPE", False),
        ("INPUT.HEIGHT", True),
        ("INPUT.WIDTH", False),
        ("DATASET.TRAIN.IMAGES_PATH", True),
        ("DATASET.VAL.MASK_PATH", False),
        ("OPTIMIZATION.AMP", True),
        ("OPTIMIZATION.XLA", False),
        ("PHANTOM.SIZE", True),
        ("EXPORT.PATH", True),
    ],
)
def test_readers_of_a_key(key, expected):
    assert is_read(tuple(key.split(".")), paths_read(SOURCE)) is expected


def test_keys_that_nothing_reads_are_those_with_one_possible_value():
    unread = [line for line in render().splitlines() if line.endswith(f"`{CHECKS}` only |")]
    names = {line.split("`")[1] for line in unread}
    assert names == {
        "PREPROCESS_DATA.RESIZE.HEIGHT",
        "PREPROCESS_DATA.RESIZE.WIDTH",
        "PREPROCESS_DATA.IMAGE_PREPROCESSING_TYPE",
    }

"""The DALI generator: the same batches as by TF, files it refuses, what happens without DALI."""

import itertools
import re
import subprocess
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import cv2
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_generators import data_generator
from data_generators.dali_data_generator import PathStream, dali_dataset, import_dali
from data_generators.dali_files import check_dali_files
from data_generators.data_generator import get_data_generator
from data_generators.epoch_order import EpochOrder
from data_generators.slice_reader import SliceReader
from data_generators.tf_data_generator import SliceSequence
from tests.conftest import SIZE, write_pair
from train import train
from utils.errors import UserError
from utils.images import resize_image, resize_mask
from utils.runtime import Runtime, setup_runtime

ROOT = Path(__file__).resolve().parents[1]
READER = SliceReader(SIZE, SIZE, 3, classes=2)
CPU = Runtime(tf.distribute.get_strategy(), ("CPU:0",), amp=False, xla=False)
GPU = Runtime(tf.distribute.get_strategy(), ("GPU:0",), amp=False, xla=False)

try:
    import_dali()
    REASON = ""
except UserError as error:
    REASON = f"DALI is not here: {error}"
needs_dali = pytest.mark.skipif(bool(REASON), reason=REASON)


def read_by_dali(
    pairs, reader, order, batches, epoch=0, augmentation=None
) -> list[tuple[np.ndarray, np.ndarray]]:
    stream = PathStream(pairs, order, augmentation)
    stream.start_epoch(epoch)
    dataset = dali_dataset(stream, reader, order.batch_size, CPU, threads=2)
    found = itertools.islice(dataset.as_numpy_iterator(), batches)
    return list(found)


def read_one(pair, reader) -> tuple[np.ndarray, np.ndarray]:
    """Image and mask of a pair."""
    [(images, masks)] = read_by_dali([pair], reader, EpochOrder(1, 1), 1)
    return images[0], masks[0]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


class Broken(MetaPathFinder):
    """Fails with `error` when DALI's plugin is imported."""

    def __init__(self, error: Exception):
        self.error = error

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "nvidia":
            raise self.error


@pytest.fixture(params=[ImportError, OSError, RuntimeError, "NotFoundError"])
def broken_dali(request, monkeypatch):
    """DALI does not load, for one reason or the other; the fixture is the reason's text."""
    text = "libdali.so: undefined symbol"
    if request.param == "NotFoundError":  # what TensorFlow raises for a plugin of another version
        error = tf.errors.NotFoundError(None, None, text)
    else:
        error = request.param(text)
    monkeypatch.delitem(sys.modules, "nvidia.dali.plugin.tf", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(error), *sys.meta_path])
    return text


def test_without_dali_the_message_gives_the_command(broken_dali, slices, make_cfg):
    cfg = make_cfg(DATA_GENERATOR_TYPE="DALI_GENERATOR")
    message = f"{broken_dali}.*bash data_generators/install_dali.sh.*TF_GENERATOR"
    with pytest.raises(UserError, match=message):
        get_data_generator(cfg, "TRAIN", CPU)
    assert (ROOT / "data_generators" / "install_dali.sh").is_file()


def test_auto_without_dali_is_the_tf_generator(broken_dali, slices, make_cfg):
    assert get_data_generator(make_cfg(), "TRAIN", GPU).generator == "TF_GENERATOR"


@pytest.mark.parametrize(
    ("choice", "mode", "runtime", "suffix", "expected"),
    [
        ("AUTO", "TRAIN", CPU, ".png", "TF_GENERATOR"),
        ("AUTO", "TRAIN", GPU, ".png", "DALI_GENERATOR"),
        ("AUTO", "TRAIN", GPU, ".bmp", "TF_GENERATOR"),
        ("AUTO", "VAL", GPU, ".png", "TF_GENERATOR"),
        ("TF_GENERATOR", "TRAIN", GPU, ".png", "TF_GENERATOR"),
        ("DALI_GENERATOR", "TRAIN", CPU, ".png", "DALI_GENERATOR"),
        ("DALI_GENERATOR", "VAL", CPU, ".png", "TF_GENERATOR"),
    ],
)
def test_choice(slices, make_cfg, monkeypatch, choice, mode, runtime, suffix, expected):
    monkeypatch.setattr(data_generator, "import_dali", lambda: None)
    monkeypatch.setattr(data_generator, "dali_dataset", lambda *arguments: arguments)
    if suffix != ".png":
        image = slices / "data" / "train" / "images" / "image_28_0.png"
        cv2.imwrite(str(image.with_suffix(suffix)), cv2.imread(str(image)))
        image.unlink()
    split = get_data_generator(make_cfg(DATA_GENERATOR_TYPE=choice), mode, runtime)
    assert split.generator == expected
    assert split.steps == 3
    assert split.steps_per_epoch == (3 if expected == "DALI_GENERATOR" else None)


def test_stream_deals_the_parts_of_every_batch_to_replicas(numbered):
    order = EpochOrder(10, 8, full_batches=True, shuffle=True, seed=1)
    stream = PathStream(numbered, order)

    def images(mine: range, batches: int) -> list[str]:
        found = itertools.islice(stream.batches(mine, replicas=4), batches)
        return [Path(bytes(row[0]).decode()).resolve() for names in found for row in names]

    expected = [numbered[i].image.resolve() for epoch in (0, 1) for i in order.positions(epoch)]
    assert images(range(4), 8) == expected
    assert images(range(2, 4), 4) == expected[4:8] + expected[12:16]
    stream.start_epoch(1)
    assert images(range(1), 1) == expected[8:10]


@pytest.mark.parametrize(
    ("which", "array", "suffix", "message"),
    [
        ("mask", np.zeros((SIZE, SIZE), np.uint16), ".png", "16 bits, colour type 0.*grey PNG"),
        ("mask", np.zeros((SIZE, SIZE, 3), np.uint8), ".png", "8 bits, colour type 2.*grey PNG"),
        ("mask", np.zeros((SIZE, SIZE), np.uint8), ".bmp", "no PNG"),
        ("image", np.zeros((SIZE, SIZE, 3), np.uint16), ".png", "16 bits, colour type 2"),
        ("image", np.zeros((SIZE, SIZE, 4), np.uint8), ".png", "8 bits, colour type 6"),
        ("image", np.zeros((SIZE, SIZE, 3), np.uint8), ".jpg", "no PNG"),
        ("image", np.zeros((8, 9, 3), np.uint8), ".png", "8 x 9 px; expected INPUT.HEIGHT=32"),
    ],
)
def test_files_that_dali_reads_otherwise_are_refused(numbered, which, array, suffix, message):
    file = getattr(numbered[3], which).with_suffix(suffix)
    cv2.imwrite(str(file), array)
    numbered[3] = numbered[3]._replace(**{which: file})
    with pytest.raises(UserError, match=f"TF_GENERATOR(?s:.*){file.name}: found.*{message}"):
        check_dali_files(numbered, READER)


def test_packed_masks_and_odd_channels_are_refused(numbered, tmp_path):
    for mode in ("1", "P"):
        Image.new(mode, (SIZE, SIZE)).save(tmp_path / f"{mode}.png")
    pairs = [numbered[0]._replace(mask=tmp_path / f"{mode}.png") for mode in ("1", "P")]
    with pytest.raises(UserError, match=r"1 bits, colour type 0(?s:.*)1 bits, colour type 3"):
        check_dali_files([*pairs, *numbered], READER)
    with pytest.raises(UserError, match="INPUT.CHANNELS: found 5"):
        check_dali_files(numbered, SliceReader(SIZE, SIZE, 5, classes=2))
    check_dali_files(numbered, READER)


@needs_dali
def test_pairs_order_and_coverage(numbered):
    def numbers(seed: int, epoch: int) -> list[list[int]]:
        order = EpochOrder(10, 5, full_batches=True, shuffle=True, seed=seed)
        found = []
        for images, masks in read_by_dali(numbered, READER, order, 6, epoch):
            by_image = (images[:, 0, 0, 0] * 25.5).round().astype(int).tolist()
            assert by_image == masks.sum(axis=(1, 2)).tolist()
            found += by_image
        return [found[i : i + 10] for i in range(0, 30, 10)]

    epochs = numbers(seed=1, epoch=0)
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert numbers(seed=1, epoch=0) == epochs
    assert numbers(seed=1, epoch=1)[:2] == epochs[1:]
    assert numbers(seed=2, epoch=0)[0] != epochs[0]


@needs_dali
@pytest.mark.parametrize("is_grey", [False, True])
@pytest.mark.parametrize(("channels", "value"), [(3, None), (1, 255), (3, 100)])
def test_same_arrays_as_the_tf_generator(tmp_path, rng, channels, value, is_grey):
    shape = (SIZE, 48) if is_grey else (SIZE, 48, 3)
    pairs = [
        write_pair(
            tmp_path,
            f"{'long_' * number}{number}",
            rng.integers(0, 256, shape).astype(np.uint8),
            rng.integers(0, 2, shape[:2]).astype(np.uint8) * (value or 1),
        )
        for number in range(6)
    ]
    reader = SliceReader(SIZE, 48, channels, classes=2, normalize_value=value)
    order = EpochOrder(6, 3, full_batches=True, shuffle=True, seed=4)
    expected = SliceSequence(pairs, reader, order)
    for found, batch in zip(read_by_dali(pairs, reader, order, 2), expected, strict=True):
        for ours, theirs in zip(found, batch, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


def waves(size: int) -> np.ndarray:
    """A smooth image, uint8 of shape (size, size, 3)."""
    y, x = np.mgrid[:size, :size] / size
    return np.dstack([np.sin(6 * x + c * y) * 100 + 128 for c in (1, 2, 3)]).astype(np.uint8)


@needs_dali
@pytest.mark.parametrize(
    ("size", "wanted", "levels"),
    [(32, 32, 0), (32, 64, 1), (64, 100, 1), (64, 32, 2), (80, 50, 2), (128, 80, 2)],
)
def test_resizing_stays_within_the_stated_tolerance(tmp_path, rng, size, wanted, levels):
    image, mask = waves(size), rng.integers(0, 3, (size, size)).astype(np.uint8)
    reader = SliceReader(wanted, wanted, 3, classes=3, resize=True)
    found_image, found_mask = read_one(write_pair(tmp_path, "0", image, mask), reader)
    expected = resize_image(image, wanted, wanted) / 255
    np.testing.assert_allclose(found_image, expected, rtol=0, atol=levels / 255 + 1e-6)

    centres = (np.arange(wanted) + 0.5) * size / wanted  # in pixels of the original
    clear = np.flatnonzero(centres != centres.round())  # no other pixel is as near
    assert len(clear) > wanted / 2 or size == 2 * wanted
    both = np.ix_(clear, clear)
    np.testing.assert_array_equal(found_mask[both], resize_mask(mask, wanted, wanted)[both])


@needs_dali
def test_shrinking_a_checkerboard_gives_grey_and_no_pattern(tmp_path):
    board = (np.indices((64, 64)).sum(axis=0) % 2).astype(np.uint8)
    pair = write_pair(tmp_path, "0", np.dstack([board * 255] * 3), board)
    image, mask = read_one(pair, SliceReader(32, 32, 3, classes=2, resize=True))
    np.testing.assert_allclose(image[1:-1, 1:-1], 128 / 255, atol=1e-6)
    np.testing.assert_allclose(image, 128 / 255, atol=8 / 255)  # the edge has no neighbours
    assert set(np.unique(resize_image(board * 255, 32, 32))) == {128}
    np.testing.assert_array_equal(mask, resize_mask(board, 32, 32))


@needs_dali
def test_train_runs_on_dali(slices, make_cfg):
    result = train(make_cfg(DATA_GENERATOR_TYPE="DALI_GENERATOR"))
    assert result["generator"] == "DALI_GENERATOR"
    assert np.isfinite(result["history"]["loss"]).all()
    assert len(result["history"]["val_loss"]) == 2
    assert result["timing"]["counted_batches"] == 2 * 3 - 2


@needs_dali
def test_two_replicas_see_and_learn_what_one_does(slices):
    script = ROOT / "tests" / "dali_replicas.py"
    run = subprocess.run(
        [sys.executable, str(script), str(slices)], capture_output=True, text=True, check=False
    )
    assert run.stdout.strip().endswith("replicas agree"), run.stderr[-3000:]


@needs_dali
def test_adapter_sets_the_epoch(slices, make_cfg):
    cfg = make_cfg(DATA_GENERATOR_TYPE="DALI_GENERATOR")
    dali = get_data_generator(cfg, "TRAIN", setup_runtime(cfg))
    plain = get_data_generator(make_cfg(DATA_GENERATOR_TYPE="TF_GENERATOR"), "TRAIN", CPU)
    for split in (dali, plain):
        split.start_epoch(7)
    np.testing.assert_array_equal(next(iter(dali.dataset))[0], plain.dataset[0][0])


@pytest.mark.parametrize(
    ("tensorflow", "compiler", "message"),
    [
        (1, "sh", "has no TensorFlow; first run: .*python -m pip install -r requirements.txt"),
        (0, "no-such-compiler", "no-such-compiler not found; .*apt-get install g"),
    ],
)
def test_install_script_says_what_is_missing(tmp_path, tensorflow, compiler, message):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$2" in *nvidia*) exit 1;; *) exit {tensorflow};; esac\n')
    python.chmod(0o755)
    script = ROOT / "data_generators" / "install_dali.sh"
    run = subprocess.run(
        ["bash", str(script), str(python)],
        env={"PATH": "/usr/bin:/bin", "CXX": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert re.search(message, run.stderr), run.stderr

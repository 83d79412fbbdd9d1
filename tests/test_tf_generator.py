"""The TF generator: pairing, order, coverage, batches, and what it refuses."""

import time
from itertools import islice

import cv2
import numpy as np
import pytest
import tensorflow as tf

from data_generators.data_generator import get_data_generator
from data_generators.epoch_order import EpochOrder
from data_generators.slice_reader import SliceReader
from data_generators.tf_data_generator import SliceSequence
from tests.conftest import SIZE
from utils.errors import UserError
from utils.images import encode_png
from utils.runtime import Runtime, setup_runtime
from utils.slice_files import SlicePair, list_slice_pairs

CPU = Runtime(tf.distribute.get_strategy(), ("CPU:0",), amp=False, xla=False)
READER = SliceReader(SIZE, SIZE, 3, classes=2)


def sequence(pairs, workers=1, **order) -> SliceSequence:
    return SliceSequence(pairs, READER, EpochOrder(len(pairs), **order), workers)


def numbers(batches) -> list[int]:
    """The numbers of the slices in the batches; fails if image and mask do not belong together."""
    found = []
    for images, masks in batches:
        assert images.dtype == np.float32
        assert masks.dtype == np.uint8
        by_image = [round(float(image[0, 0, 0]) * 25.5) for image in images]
        assert by_image == [int(mask.sum()) for mask in masks]
        found += by_image
    return found


@pytest.mark.parametrize("workers", [1, 3])
def test_without_shuffle_every_slice_in_order_and_a_smaller_last_batch(numbered, workers):
    dataset = sequence(numbered, batch_size=4, workers=workers)
    assert len(dataset) == 3
    assert numbers(dataset) == list(range(10))
    assert [len(images) for images, _ in dataset] == [4, 4, 2]


def test_order_is_a_function_of_seed_and_epoch(numbered):
    def order(seed, epoch):
        dataset = sequence(numbered, batch_size=5, shuffle=True, seed=seed)
        dataset.start_epoch(epoch)
        return numbers(dataset)

    assert order(1, 0) == order(1, 0)
    assert sorted(order(1, 0)) == list(range(10))
    assert len({tuple(order(*key)) for key in [(1, 0), (1, 1), (1, 2), (2, 0)]}) == 4


def test_reading_the_length_or_a_batch_changes_nothing(numbered):
    dataset = sequence(numbered, batch_size=4, shuffle=True)
    before = numbers(dataset)
    for _ in range(5):
        len(dataset)
        dataset.on_epoch_end()
    assert numbers([dataset[2], dataset[0]]) == before[8:] + before[:4]
    assert numbers(dataset) == before


def test_full_batches_leave_other_slices_out_every_epoch(numbered):
    dataset = sequence(numbered, batch_size=4, full_batches=True, shuffle=True)
    assert len(dataset) == 2
    left_out = set()
    for epoch in range(8):
        dataset.start_epoch(epoch)
        used = numbers(dataset)
        assert len(set(used)) == 8
        left_out |= set(range(10)) - set(used)
    assert len(left_out) > 4


@pytest.mark.parametrize(("steps", "times"), [(1, [0, 1]), (5, [2]), (7, [2, 3])])
def test_steps_per_epoch_take_less_or_more_than_all(numbered, steps, times):
    dataset = sequence(numbered, batch_size=4, steps_per_epoch=steps, shuffle=True)
    found = numbers(dataset)
    assert len(dataset) == steps
    assert len(found) == 4 * steps
    assert {found.count(number) for number in range(10)} == set(times)


def test_keras_sees_every_slice_once_per_epoch_in_the_epochs_own_order(numbered):
    import keras

    seen = []

    class Recorder(keras.Model):
        def train_step(self, data):
            images, _ = data
            seen.append(images)
            return {"loss": keras.ops.sum(images)}

    dataset = sequence(numbered, batch_size=5, shuffle=True, seed=3, workers=2)
    model = Recorder()
    model.compile(run_eagerly=True)
    start = keras.callbacks.LambdaCallback(on_epoch_begin=lambda e, logs: dataset.start_epoch(e))
    model.fit(dataset, epochs=3, shuffle=False, verbose=0, callbacks=[start])
    found = [round(float(image[0, 0, 0]) * 25.5) for images in seen for image in images]
    for epoch in range(3):
        dataset.start_epoch(epoch)
        assert found[10 * epoch : 10 * epoch + 10] == numbers(dataset)


def test_reader_resizes_image_and_mask_when_asked(tmp_path):
    mask = np.zeros((8, 12), np.uint8)
    mask[2:6, 3:9] = 2
    image = np.dstack([mask * 100, mask * 50, mask * 0])
    files = []
    for name, array in {"image": image, "mask": mask}.items():
        files.append(tmp_path / f"{name}.png")
        files[-1].write_bytes(encode_png(array))
    pair = SlicePair(*files)
    reader = SliceReader(16, 24, 3, classes=3, resize=True)
    got_image, got_mask = reader.read(pair)
    np.testing.assert_array_equal(got_mask, mask.repeat(2, axis=0).repeat(2, axis=1))
    assert got_image.shape == (16, 24, 3)
    np.testing.assert_allclose(got_image[8, 12], [200 / 255, 100 / 255, 0], atol=1e-6)
    with pytest.raises(UserError, match=r"found 8 x 12 px; expected INPUT.HEIGHT=16"):
        SliceReader(16, 24, 3, classes=3).read(pair)
    with pytest.raises(UserError, match=r"mask.png: found class ids 2; OUTPUT.CLASSES=2"):
        SliceReader(8, 12, 3, classes=2).read(pair)


def test_without_mask_the_target_is_background(numbered):
    image, mask = READER.read(SlicePair(numbered[3].image, None))
    assert image[0, 0, 0] == np.float32(30) / np.float32(255)
    assert not mask.any()


def test_adapter_counts_steps_once(slices, make_cfg):
    cfg = make_cfg()
    runtime = setup_runtime(cfg)
    training = get_data_generator(cfg, "TRAIN", runtime)
    validation = get_data_generator(cfg, "VAL", runtime)
    assert (training.steps, len(training.pairs), training.global_batch) == (3, 14, 4)
    assert (validation.steps, len(validation.pairs)) == (3, 9)
    assert sum(len(images) for images, _ in validation.dataset) == 9


def test_fewer_slices_than_a_batch_is_an_error(slices, make_cfg):
    cfg = make_cfg(HYPER_PARAMETERS={"BATCH_SIZE": 16})
    with pytest.raises(UserError, match="BATCH_SIZE: found 16 slices per step.*only 14 slices"):
        get_data_generator(cfg, "TRAIN", setup_runtime(cfg))


def test_pairs_by_name_in_natural_order(slices):
    pairs = list_slice_pairs("data/train/images", "data/train/mask", slices, "DATASET.TRAIN")
    assert [pair.image.name for pair in pairs[:3]] == [f"image_28_{i}.png" for i in range(3)]
    assert all(pair.mask.name == pair.image.name.replace("image", "mask") for pair in pairs)


def test_two_lists_pair_by_position_and_masks_are_optional(slices):
    images = [str(slices / "data/val/images" / f"image_0_{i}.png") for i in (3, 1)]
    masks = [str(slices / "data/val/mask" / f"mask_0_{i}.png") for i in (1, 3)]
    pairs = list_slice_pairs(images, masks, slices, "DATASET.VAL")
    assert [(pair.image.name, pair.mask.name) for pair in pairs] == [
        ("image_0_3.png", "mask_0_1.png"),
        ("image_0_1.png", "mask_0_3.png"),
    ]
    assert [pair.mask for pair in list_slice_pairs(images, None, slices, "key")] == [None, None]


def test_a_text_file_lists_paths(slices):
    names = ["data/val/images/image_0_3.png", str(slices / "data/val/images/image_0_1.png")]
    (slices / "some.txt").write_text("\n".join([names[0], "", f" {names[1]} "]))
    pairs = list_slice_pairs("some.txt", "data/val/mask", slices, "DATASET.VAL")
    assert pairs == list_slice_pairs(names, "data/val/mask", slices, "DATASET.VAL")
    assert [pair.mask.name for pair in pairs] == ["mask_0_3.png", "mask_0_1.png"]
    (slices / "bad.txt").write_text("\n")
    with pytest.raises(UserError, match="DATASET.VAL.MASK_PATH: .*bad.txt is empty"):
        list_slice_pairs("some.txt", "bad.txt", slices, "DATASET.VAL")
    (slices / "bad.txt").write_bytes(b"\x89PNG\xff")
    with pytest.raises(UserError, match="bad.txt: cannot be read .not text in UTF-8"):
        list_slice_pairs("some.txt", "bad.txt", slices, "DATASET.VAL")


@pytest.mark.parametrize(
    ("images", "masks", "message"),
    [
        ("data/none.txt", None, "none.txt: cannot be read .No such file"),
        ("data/nothing", "data/val/mask", "DATASET.VAL.IMAGES_PATH: folder not found"),
        ("data", None, "no image files"),
        ("data/val/images", "data/train/mask", "no mask named mask_0_0"),
        (["data/val/images/image_0_0.png"], ["a.png"], "MASK_PATH: files not found"),
        (["data/val/images/image_0_0.png"], ["data/val/mask/mask_0_0.png"] * 2, "1 images and 2"),
        ([], None, "IMAGES_PATH: found an empty list"),
    ],
)
def test_pairing_problems_are_named(slices, images, masks, message):
    with pytest.raises(UserError, match=message):
        list_slice_pairs(images, masks, slices, "DATASET.VAL")


def test_orphan_masks_and_twins_are_named(slices):
    folder = slices / "data" / "val"
    (folder / "images" / "image_0_0.png").unlink()
    with pytest.raises(UserError, match="mask_0_0.png: no image belongs to this mask"):
        list_slice_pairs("data/val/images", "data/val/mask", slices, "DATASET.VAL")
    cv2.imwrite(str(folder / "images" / "image_0_1.jpg"), np.zeros((4, 4), np.uint8))
    with pytest.raises(UserError, match="image_0_1.*has the same name as"):
        list_slice_pairs("data/val/images", "data/val/mask", slices, "DATASET.VAL")


@pytest.mark.parametrize("mode", ["TRAIN", "VAL"])
def test_the_data_set_of_fit_has_the_same_batches_padded_with_slices_of_no_weight(
    slices, make_cfg, mode
):
    cfg = make_cfg()
    runtime = setup_runtime(cfg)
    own, of_fit = (get_data_generator(cfg, mode, runtime, for_fit=fit) for fit in (False, True))
    for (images, masks), batch in zip(own.dataset, of_fit.dataset, strict=False):
        real = len(images)
        np.testing.assert_array_equal(batch[0][:real], images)
        np.testing.assert_array_equal(batch[1][:real], masks)
        if mode == "VAL":  # 9 slices in 3 batches of 4
            assert batch[2].numpy().tolist() == pytest.approx([12 / 9] * real + [0] * (4 - real))
        assert len(batch) == {"TRAIN": 2, "VAL": 3}[mode]


def test_the_batches_read_ahead_stay_few(numbered):
    read = []

    class CountingReader:
        height, width, channels = READER.height, READER.width, READER.channels

        def read(self, pair, image_out):
            read.append(pair)
            return READER.read(pair, image_out)

    order = EpochOrder(len(numbered), batch_size=2)
    batches = iter(SliceSequence(numbered, CountingReader(), order).distribute(CPU))
    rounds, taken = 5, 30  # a buffer that TensorFlow tunes doubles whenever it runs empty
    for _ in range(rounds):
        assert sum(1 for _ in islice(batches, taken)) == taken
        count = -1
        while count < len(read):  # until nothing is read any more
            count = len(read)
            time.sleep(0.2)
    assert rounds * taken < len(read) / 2 <= rounds * taken + 5

"""Slices without foreground: how many an epoch takes, which ones, and how they are known."""

from itertools import groupby

import numpy as np
import pytest

from data_generators.data_generator import get_data_generator
from data_generators.epoch_order import EpochOrder
from utils.errors import UserError
from utils.log import logger
from utils.run_identity import refuse_other_run, run_identity
from utils.runtime import setup_runtime

EMPTY = tuple(range(10, 30))  # of 30 slices


def order(share: float, **changes) -> EpochOrder:
    settings = {"batch_size": 5, "full_batches": True, "shuffle": True, "seed": 3} | changes
    return EpochOrder(30, empty=EMPTY, empty_share=share, **settings)


@pytest.mark.parametrize(("share", "taken"), [(1.0, 20), (0.5, 10), (0.25, 5), (0.26, 5), (0, 0)])
def test_an_epoch_takes_a_share_of_the_empty_slices_and_all_others(share, taken):
    for epoch in range(3):
        positions = order(share).positions(epoch).tolist()
        assert len(positions) == len(set(positions)) == 10 + taken
        assert set(range(10)) <= set(positions)
    assert order(share).steps == (10 + taken) // 5


def test_the_choice_is_a_function_of_seed_and_epoch():
    chosen = {
        key: frozenset(order(0.5, seed=key[0]).positions(key[1]).tolist())
        for key in [(3, 0), (3, 1), (3, 2), (4, 0)]
    }
    assert len(set(chosen.values())) == 4
    assert chosen[3, 1] == set(order(0.5).positions(1).tolist())
    seen = set().union(*[order(0.25).positions(epoch).tolist() for epoch in range(40)])
    assert seen == set(range(30))


def test_all_slices_come_in_the_order_of_before():
    plain = EpochOrder(30, 5, full_batches=True, shuffle=True, seed=3)
    np.testing.assert_array_equal(order(1.0).positions(2), plain.positions(2))


def test_without_shuffling_the_chosen_ones_stay_in_order():
    positions = order(0.5, shuffle=False).positions(0)
    assert (np.diff(positions) > 0).all()
    assert len(positions) == 20


def test_more_steps_than_slices_choose_anew_in_every_round():
    positions = order(0.25, steps_per_epoch=6).positions(0)
    first, second = set(positions[:15].tolist()), set(positions[15:].tolist())
    assert len(first) == len(second) == 15
    assert first & second >= set(range(10))
    assert first != second


@pytest.mark.parametrize("replicas", [1, 5])
def test_replicas_share_the_epoch_out(replicas):
    for epoch, shares in groupby(order(0.5).shares(range(replicas), replicas), lambda s: s.epoch):
        places, found = np.concatenate([part[1:] for part in shares], axis=1)
        np.testing.assert_array_equal(places, np.arange(20))
        np.testing.assert_array_equal(found, order(0.5).positions(epoch))
        if epoch == 2:
            break


def test_the_adapter_applies_the_share(slices, make_cfg):
    # Slices 2 and 5 of case 28 and of case 29 have no disc: 4 of 14
    for share, batches in ((1.0, 14), (0.5, 12), (0, 10)):
        cfg = make_cfg(
            DATASET={"TRAIN": {"EMPTY_SLICES": share}}, HYPER_PARAMETERS={"BATCH_SIZE": 1}
        )
        split = get_data_generator(cfg, "TRAIN", setup_runtime(cfg))
        assert split.steps == batches
        assert sum(bool(masks.any()) for _, masks in split.dataset) == 10


def test_resuming_with_another_share_is_warned_of(make_cfg, monkeypatch, caplog):
    monkeypatch.setattr(logger, "propagate", True)
    saved, current = (
        run_identity(make_cfg(DATASET={"TRAIN": {"EMPTY_SLICES": share}}), "float32", {})
        for share in (1, 0.5)
    )
    refuse_other_run(saved, current)
    assert "DATASET.TRAIN.EMPTY_SLICES 1.0 -> 0.5" in caplog.text


def test_nothing_left_is_an_error(slices, make_cfg):
    cfg = make_cfg(DATASET={"TRAIN": {"EMPTY_SLICES": 0}}, HYPER_PARAMETERS={"BATCH_SIZE": 11})
    with pytest.raises(UserError, match="found 11 slices per step.*training has only 10 slices"):
        get_data_generator(cfg, "TRAIN", setup_runtime(cfg))
    empty = (slices / "data/train/mask/mask_28_2.png").read_bytes()
    for mask in (slices / "data/train/mask").iterdir():
        mask.write_bytes(empty)
    with pytest.raises(UserError, match="EMPTY_SLICES: found 0, but none of the 14 slices"):
        get_data_generator(cfg, "TRAIN", setup_runtime(cfg))

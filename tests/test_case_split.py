"""Validation cases out of TRAIN: which ones, folds, what is refused, and training on them."""

from collections import Counter

import pytest
from omegaconf import OmegaConf

from configs import CONFIG_DIR
from data_generators.data_generator import get_data_generator
from data_preparation.verify_data import verify_data
from evaluate import evaluate
from tests.conftest import write_slices
from train import train
from utils.case_split import deal_into_folds, held_out_cases
from utils.errors import UserError
from utils.log import logger
from utils.runtime import setup_runtime
from utils.slice_files import cases_of, list_split

CASES = {str(case): 5 + case for case in range(28, 51)}  # 23 cases, the larger the later


def held_out(cases=CASES, **settings) -> set[str]:
    defaults = OmegaConf.load(CONFIG_DIR / "config.yaml").DATASET.SPLIT
    return held_out_cases(cases, OmegaConf.merge(defaults, settings))


@pytest.mark.parametrize(("fraction", "count"), [(0.2, 5), (0.001, 1), (0.9, 21)])
def test_a_fraction_of_the_cases(fraction, count):
    chosen = held_out(VAL_FRACTION=fraction)
    assert len(chosen) == count
    assert chosen < set(CASES)
    assert chosen == held_out(VAL_FRACTION=fraction)


def test_another_seed_chooses_others():
    assert len({frozenset(held_out(VAL_FRACTION=0.2, SEED=seed)) for seed in range(10)}) == 10


def test_named_cases():
    assert held_out(VAL_CASES=["30", "28"]) == {"28", "30"}


@pytest.mark.parametrize("folds", [2, 3, 5, 23])
def test_every_case_is_in_one_fold_and_folds_are_balanced(folds):
    dealt = [held_out(FOLDS=folds, FOLD=fold) for fold in range(folds)]
    assert Counter(case for fold in dealt for case in fold) == Counter(CASES.keys())
    sizes = [len(fold) for fold in dealt]
    assert max(sizes) - min(sizes) <= 1


def test_folds_spread_the_large_cases():
    cases = {"a": 900, "b": 800, "c": 60, "d": 50, "e": 9, "f": 8}
    for seed in range(20):
        for fold in deal_into_folds(cases, 2, seed):
            assert [len(set(fold) & set(pair)) for pair in ("ab", "cd", "ef")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("cases", "settings", "message"),
    [
        (CASES, {"VAL_CASES": ["28", "7"]}, "VAL_CASES: found 7; DATASET.TRAIN has the cases 28"),
        (CASES, {"VAL_CASES": []}, "VAL_CASES: found an empty list"),
        (CASES, {"FOLDS": 24}, "FOLDS: found 24; DATASET.TRAIN has only 23 cases"),
        (CASES, {"VAL_CASES": list(CASES)}, "all 23 cases .* none is left to train on"),
        ({"28": 9}, {"VAL_FRACTION": 0.2}, "all 1 cases .* none is left to train on"),
        ({"a": 1, "b": 1}, {"VAL_FRACTION": 0.5}, "name them image_<case>_<slice>"),
    ],
)
def test_what_cannot_be_split(cases, settings, message):
    with pytest.raises(UserError, match=message):
        held_out(cases, **settings)


@pytest.fixture
def three_cases(tmp_path, make_cfg):
    """A maker of configurations for a work directory with TRAIN only: cases 28, 29 and 30."""
    write_slices(tmp_path / "data" / "train", {"28": 6, "29": 6, "30": 3})
    return make_cfg


def test_lists_of_slices(three_cases):
    cfg = three_cases(DATASET={"SPLIT": {"VAL_CASES": [29]}})
    assert cases_of(list_split(cfg, "TRAIN")) == ["28", "30"]
    assert cases_of(list_split(cfg, "HELD_OUT")) == ["29"]
    assert cases_of(list_split(three_cases(), "TRAIN")) == ["28", "29", "30"]
    split = get_data_generator(cfg, "HELD_OUT", setup_runtime(cfg))
    assert [len(images) for images, _ in split.dataset] == [4, 2]


def test_training_validates_on_them_and_evaluation_can_score_them(three_cases):
    cfg = three_cases(
        DATASET={"SPLIT": {"VAL_CASES": ["30"]}, "TRAIN": {"EMPTY_SLICES": 0.5}},
        AUGMENTATION={"ENABLED": True},
        HYPER_PARAMETERS={"EPOCHS": 1, "BATCH_SIZE": 2},
    )
    result = train(cfg)
    # 8 slices with a disc and 2 of 4 without make 5 batches, of which 2 are the warm-up
    assert result["timing"]["counted_batches"] == 3
    assert result["split"] == {
        "training_cases": ["28", "29"],
        "validated_on": "HELD_OUT",
        "validation_cases": ["30"],
    }
    scored = three_cases(DATASET={"SPLIT": {"VAL_CASES": ["30"]}}, EVALUATION={"SPLIT": "held_out"})
    summary = evaluate(scored)
    assert summary["split"] == "HELD_OUT"
    assert summary["slices"]["slices"] == 3
    with pytest.raises(UserError, match="DATASET.VAL.IMAGES_PATH: folder not found"):
        evaluate(cfg)
    others = {"SPLIT": {"VAL_CASES": ["28", "30"]}}
    with pytest.raises(UserError, match="trained on cases that are to be scored: 28; set"):
        evaluate(three_cases(DATASET=others, EVALUATION={"SPLIT": "held_out"}))
    permitted = others | {"ALLOW_SHARED_CASES": True}
    summary = evaluate(three_cases(DATASET=permitted, EVALUATION={"SPLIT": "held_out"}))
    assert summary["slices"]["slices"] == 9


def test_verification_looks_at_all_splits(three_cases, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logger, "propagate", True)
    carved = three_cases(DATASET={"SPLIT": {"FOLDS": 3}})
    verify_data(carved)
    assert "VAL is not checked" in caplog.text
    for case in ("28", "29", "30"):
        write_slices(tmp_path / case, {case: 2}, seed=int(case))
        paths = {"IMAGES_PATH": f"{case}/images", "MASK_PATH": f"{case}/mask"}
        with pytest.raises(UserError, match=f"and VAL share 1 cases: {case}"):
            verify_data(three_cases(DATASET={"SPLIT": {"FOLDS": 3}, "VAL": paths}))
    with pytest.raises(UserError, match=r"problems \(1\)(?s:.*)FOLDS: found 4"):
        verify_data(three_cases(DATASET={"SPLIT": {"FOLDS": 4}}))

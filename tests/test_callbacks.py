"""Callbacks: best weights and timing."""

from pathlib import Path

import pytest

from callbacks import timing
from callbacks.best_weights import BestWeights
from callbacks.timing import TimingCallback


class SavedModel:
    """Stands for a model whose whole is saved."""

    def save(self, path: Path) -> None:
        path.write_text("model")


def run_epochs(tmp_path: Path, scores: list[float], **options) -> tuple[BestWeights, list]:
    saved = []
    best = BestWeights(
        tmp_path / "net.weights.h5", lambda model, path, facts: saved.append((path.name, facts)),
        "val_dice_coef", **options,
    )  # fmt: skip
    best.set_model(SavedModel())
    for epoch, score in enumerate(scores):
        best.on_epoch_end(epoch, {"val_dice_coef": score})
    return best, saved


def test_only_better_epochs_are_saved(tmp_path):
    best, saved = run_epochs(tmp_path, [0.2, 0.5, 0.5, 0.4, 0.6])
    assert [facts["epoch"] for _, facts in saved] == [1, 2, 5]
    assert {name for name, _ in saved} == {"net.weights.h5"}
    assert (best.best_score, best.best_epoch) == (0.6, 5)


def test_a_score_of_zero_is_better_than_none(tmp_path):
    best, saved = run_epochs(tmp_path, [0.0])
    assert len(saved) == 1


def test_nan_is_never_the_best(tmp_path):
    best, saved = run_epochs(tmp_path, [0.3, float("nan"), 0.2])
    assert (best.best_score, len(saved)) == (0.3, 1)


def test_last_weights_and_whole_model_on_request(tmp_path):
    _, saved = run_epochs(tmp_path, [0.5, 0.4], keep_last=True, save_model=True)
    assert [name for name, _ in saved] == [
        "net_last.weights.h5", "net.weights.h5", "net_last.weights.h5",
    ]  # fmt: skip
    assert (tmp_path / "net.keras").read_text() == "model"


@pytest.mark.parametrize(
    ("durations", "latency", "warm_up"), [([9.0, 5.0, 0.5, 0.3], 400.0, 14.0), ([9.0], None, 9.0)]
)
def test_timing_keeps_the_first_batches_apart(monkeypatch, durations, latency, warm_up):
    now = iter([100.0, *[t for d in durations for t in (0.0, d)], 130.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(now))
    callback = TimingCallback(global_batch=8)
    callback.on_train_begin()
    for batch in range(len(durations)):
        callback.on_train_batch_begin(batch)
        callback.on_train_batch_end(batch)
    callback.on_train_end()
    result = callback.result()
    assert result["total_seconds"] == 30.0
    assert result["warm_up_seconds"] == warm_up
    assert result["latency_msec"] == (latency and pytest.approx(latency))
    assert result["throughput_samples_per_sec"] == (latency and pytest.approx(8 / 0.4))

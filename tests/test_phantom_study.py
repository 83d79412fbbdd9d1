"""The study of variants and losses on phantom scans: its runs, its results, its table."""

from itertools import product
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from benchmarks import phantom_study, phantom_table
from benchmarks.phantom_study import FINGERPRINT, LOSSES, SEEDS, Cell
from benchmarks.phantom_table import COLUMNS, pair_table, read_rows, variant_table
from models.unet3plus import VARIANTS

ROOT = Path(__file__).resolve().parents[1]


def row(cell: Cell, dice: float, false_positives: int, settings: str = FINGERPRINT) -> dict:
    values = (*cell, dice, 0.02, dice + 0.01, false_positives, 10, 60, 1000, settings)
    return {name: str(value) for name, value in zip(COLUMNS, values, strict=True)}


def committed(column: str, variant: str, losses=tuple(LOSSES)) -> list[float]:
    """A column of the committed results."""
    rows = (row for row in read_rows() if row["variant"] == variant and row["loss"] in losses)
    return [float(row[column]) for row in rows]


ROWS = [
    row(Cell("unet3plus", "focal", 1), 0.90, 100),
    row(Cell("unet3plus", "focal", 2), 0.92, 130),
    row(Cell("unet3plus_deepsup", "focal", 1), 0.95, 7),
    row(Cell("unet3plus_deepsup", "focal", 2), 0.92, 9),
]


def test_a_pair_has_mean_and_sd_of_its_seeds():
    assert pair_table(ROWS).splitlines()[2:] == [
        "| `unet3plus` | `focal` | 2 | 0.9100 ± 0.0141 |  | 0.0200 ± 0.0000 | 0.9200 ± 0.0141 "
        "| 115 ± 21 |",
        "| `unet3plus_deepsup` | `focal` | 2 | 0.9350 ± 0.0212 | +0.0250 ± 0.0354 "
        "| 0.0200 ± 0.0000 | 0.9450 ± 0.0212 | 8 ± 1 |",
    ]


def test_a_variant_has_the_mean_gain_of_its_pairs_with_its_standard_error():
    other_loss = [
        row(Cell("unet3plus", "reference", 1), 0.80, 1),
        row(Cell("unet3plus_deepsup", "reference", 1), 0.79, 2),
    ]
    rows = sorted(ROWS + other_loss, key=lambda line: line["variant"])
    # Gains 0.05, 0 and -0.01: their standard deviation over the root of three
    assert variant_table(rows).splitlines()[2:] == [
        "| `unet3plus` | 3 | 0.8733 |  | 231 |",
        "| `unet3plus_deepsup` | 3 | 0.8867 | +0.0133 ± 0.0186 | 18 |",
    ]


def test_a_single_run_has_neither_deviation_nor_error():
    rows = [ROWS[0], ROWS[2]]
    *_, pair = pair_table(rows).splitlines()
    *_, variant = variant_table(rows).splitlines()
    assert pair.startswith("| `unet3plus_deepsup` | `focal` | 1 | 0.9500 | +0.0500 | 0.0200 |")
    assert variant == "| `unet3plus_deepsup` | 1 | 0.9500 | +0.0500 | 7 |"


def test_the_readme_shows_the_committed_results():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for table in (variant_table, pair_table):
        assert table(read_rows()) in readme


def test_the_committed_results_were_made_with_the_committed_settings():
    rows = read_rows()
    cells = {Cell(row["variant"], row["loss"], int(row["seed"])) for row in rows}
    assert len(cells) == len(rows)
    assert cells == {Cell(*values) for values in product(VARIANTS, LOSSES, SEEDS)}
    assert {row["settings"] for row in rows} == {FINGERPRINT}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_in_the_committed_results_no_variant_loses_to_the_base(variant, loss):
    dice, base = (
        committed("dice_per_case_mean", name, (loss,)) for name in (variant, phantom_table.BASE)
    )
    assert len(dice) == len(base) >= 3
    assert sum(dice) >= sum(base)


def test_in_the_committed_results_the_module_cuts_false_positives():
    base, _, module = (
        sum(committed("false_positive_voxels_empty_slices", variant)) for variant in VARIANTS
    )
    assert module < base / 2


def test_only_runs_that_are_missing_or_have_other_settings_are_run(tmp_path, monkeypatch, capsys):
    results, ran = tmp_path / "results.csv", []

    def run_all(function, cells, workers):
        assert function is phantom_study.run_in_own_process
        for cell in cells:
            if len(ran) == 4:
                raise KeyboardInterrupt
            ran.append(cell)
            yield cell, row(cell, 0.9, 0)

    monkeypatch.setattr(phantom_study, "RESULTS", results)
    monkeypatch.setattr(phantom_study, "read_rows", lambda: read_rows(results))
    monkeypatch.setattr(phantom_study, "run_in_processes", run_all)
    monkeypatch.setattr(phantom_study, "_draw_scans", lambda: None)
    first, second = Cell("unet3plus", "unet3p_hybrid", 1), Cell("unet3plus", "unet3p_hybrid", 2)
    phantom_study.write_csv(results, [row(first, 0.8, 5), row(second, 0.8, 5, settings="other")])
    with pytest.raises(KeyboardInterrupt):
        phantom_study.main()
    assert first not in ran
    assert [cell.seed for cell in ran] == [1, 1, 1, 1]
    kept = read_rows(results)
    assert [line["dice_per_case_mean"] for line in kept] == ["0.8"] + ["0.9"] * 4
    assert {line["settings"] for line in kept} == {FINGERPRINT}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_run_is_configured_apart(variant, loss):
    first, second = (Cell(variant, loss, seed).config() for seed in (1, 2))
    for key, value in {
        "MODEL.TYPE": variant,
        "SEED": 1,
        "LOSS.TYPE": "reference" if loss == "reference" else "unet3p_hybrid",
        "LOSS.IOU.ENABLED": loss != "focal",
        "LOSS.MS_SSIM.ENABLED": loss != "focal",
    }.items():
        assert OmegaConf.select(first, key) == value, key
    assert second.SEED == 2
    assert first.RESULTS_PATH != second.RESULTS_PATH


def test_the_results_lie_where_the_table_reads_them():
    assert phantom_study.RESULTS == phantom_table.RESULTS
    assert phantom_table.RESULTS.is_file()

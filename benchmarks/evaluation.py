"""Seconds that `evaluate.py` takes for network and scoring: `python -m benchmarks.evaluation`.

The network is the default one with random weights, whose scattered masks are harder to score than
those of a trained one.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from omegaconf import DictConfig

from benchmarks.measure import report
from data_preparation.preprocess_data import preprocess_data
from data_preparation.synthetic import write_phantoms
from evaluate import evaluate
from models.model import model_identity, prepare_model, weights_path
from models.weights import save_weights
from utils.config import validate_config

SIZE, SLICES = 512, 24


def configuration(folder: Path) -> DictConfig:
    """One phantom scan of 512 x 512 px in `folder` as the validation set."""
    return validate_config(
        {
            "WORK_DIR": str(folder),
            "DATA_PREPARATION": {"SCANS_TRAIN_DATA_PATH": None},
            "HYPER_PARAMETERS": {"BATCH_SIZE": 2},
            "PHANTOM": {"VAL_CASES": 1, "SIZE": SIZE, "SLICES": SLICES},
            "VERBOSE": 0,
        }
    )


def main() -> None:
    """Measure, print, write."""
    with TemporaryDirectory() as folder:
        cfg = configuration(Path(folder))
        write_phantoms(cfg)
        preprocess_data(cfg)
        save_weights(prepare_model(cfg), weights_path(cfg), model_identity(cfg))
        summary = evaluate(cfg)
    slices, seconds = summary["slices"]["slices"], summary["seconds"]
    rows = [
        {
            "part": part,
            "s": round(seconds[part], 2),
            "s per slice": round(seconds[part] / slices, 3),
            "share": f"{seconds[part] / sum(seconds.values()):.0%}",
        }
        for part in ("network", "scoring")
    ]
    report("evaluation", f"evaluate.py on a scan of {SIZE} x {SIZE} px, {slices} slices", rows)


if __name__ == "__main__":
    main()

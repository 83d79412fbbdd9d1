"""What a run says on the screen before and after it trains."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from utils.cli import same_command
from utils.log import console, logger
from utils.runtime import Runtime
from utils.slice_files import SlicePair, cases_of

# Keys that do not matter to evaluation
_OF_TRAINING = ("RESUME", "SEED", "VERBOSE", "LOSS.", "DATASET.TRAIN.", "DATA_GENERATOR_TYPE",
                "HYPER_PARAMETERS.", "CALLBACKS.EARLY_STOPPING.", "CALLBACKS.TENSORBOARD.",
                "CALLBACKS.CSV_LOGGER.")  # fmt: skip


def print_start(
    cfg: DictConfig,
    runtime: Runtime,
    parameters: int,
    splits: dict[str, list[SlicePair]],
    steps: str,
    folders: dict[str, Path],
) -> None:
    """Print the facts of a run.

    Args:
        cfg: the configuration.
        runtime: the devices.
        parameters: of the network.
        splits: the slices by what they are for.
        steps: how an epoch is made up.
        folders: where what is written goes.
    """
    size, settings = cfg.INPUT, cfg.HYPER_PARAMETERS
    facts = {
        "Network": f"{cfg.MODEL.TYPE} on {cfg.MODEL.BACKBONE.TYPE}, {parameters:,} parameters, "
        f"{size.HEIGHT} x {size.WIDTH} px x {size.CHANNELS}, {cfg.OUTPUT.CLASSES} class(es)",
        **{name: _extent(pairs) for name, pairs in splits.items()},
        "Epochs": f"up to {settings.EPOCHS}, each {steps}",
        "Optimizer": _optimizer(settings),
        "Loss": str(cfg.LOSS.TYPE),
        "Devices": f"{', '.join(runtime.devices)}, {runtime.replicas} replica(s)",
        "Precision": f"{runtime.precision}, XLA {'on' if runtime.xla else 'off'}",
        **{name: str(folder) for name, folder in folders.items()},
    }
    for name, fact in facts.items():
        console.print(f"{name:<{max(map(len, facts))}}  {fact}")


def _extent(pairs: list[SlicePair]) -> str:
    return f"{len(pairs):,} slices of {len(cases_of(pairs))} cases"


def _optimizer(settings: DictConfig) -> str:
    schedule = settings.LEARNING_RATE_SCHEDULE
    text = f"{settings.OPTIMIZER}, learning rate {settings.LEARNING_RATE:g}, {schedule.TYPE}"
    for what, value, default in (
        ("epochs of warm-up", schedule.WARMUP_EPOCHS, 0),
        ("weight decay", settings.WEIGHT_DECAY, 0),
        ("norm of gradients up to", settings.CLIP_NORM, None),
        ("batches per step", settings.GRADIENT_ACCUMULATION, 1),
        ("averaged weights, decay", settings.EMA, None),
    ):
        text += f"; {what} {value:g}" if value != default else ""
    return text


def print_end(result: dict[str, Any], monitor: str, files: dict[str, Path]) -> None:
    """Print best score, files, the next command, and last of all the times.

    Args:
        result: what train.json holds.
        monitor: the score that decides what is best.
        files: what was written, by what it is.
    """
    timing, best = result["timing"], result["best"]
    if not best[monitor] > 0:
        logger.warning(
            f"{monitor} never rose above 0 in {result['epochs']} epochs: on DATASET.VAL the "
            "network finds nothing of the foreground. Look at the masks (data_preparation/"
            "verify_data.py shows the share of every class), train longer, or change "
            "HYPER_PARAMETERS.LEARNING_RATE"
        )
    console.print(f"Best {monitor}: {best[monitor]:.4f} in epoch {best['epoch']}")
    for what, path in files.items():
        console.print(f"{what}: {path}")
    console.print(f"Next: {same_command('evaluate.py', without=_OF_TRAINING)}")
    console.print(f"First batches, with compilation: {timing['warm_up_seconds']:.2f} sec")
    print(f"Total training time: {timing['total_seconds']:.2f} sec")
    if timing["latency_msec"] is None:
        print("Training latency: n/a (the run had no batch after the warm-up)")
        print("Training throughput/FPS: n/a")
    else:
        print(f"Training latency: {timing['latency_msec']:.2f} msec")
        print(f"Training throughput/FPS: {timing['throughput_samples_per_sec']:.2f} samples/sec")

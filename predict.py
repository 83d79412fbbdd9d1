"""Predict masks: `python predict.py DATASET.VAL.IMAGES_PATH=<scan, scans or slices>`.

Scans (NIfTI) give masks on their own grid, slice images give masks and pictures. From Python,
`segment_scan("volume-0.nii", "checkpoint/model_unet3plus.weights.h5")` needs no configuration.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import keras
import nibabel as nib
import numpy as np
from omegaconf import DictConfig
from PIL import Image

from data_generators.data_generator import get_data_generator
from data_generators.slice_reader import normalize
from data_preparation.case_records import file_state
from data_preparation.native_grid import unfit_masks
from data_preparation.scan_inputs import find_scan_inputs, mask_name, scan_stem
from data_preparation.scans import Scan, header_doubts, read_scan, restore_orientation
from data_preparation.slices import SliceSettings, grey_slices, slice_settings, three_slices
from models.from_weights import model_from_weights
from models.inference import most_likely_class
from models.model import inference_view, model_identity, prepare_model, weights_path
from models.weights import load_weights, require_weights
from utils.cli import run_command
from utils.errors import FailedCasesError, UserError
from utils.exhaustion import explain_exhaustion
from utils.images import encode_png, image_to_mask_name, resize_mask
from utils.log import console, logger, progress
from utils.paths import atomic_path, output_folder, write_bytes
from utils.pictures import contact_sheet, overlay, panel, show, to_rgb
from utils.results import results_folder
from utils.runtime import Runtime, setup_runtime

SHEET_SLICES = 16  # on the contact sheet of a scan
ORIGIN_MARK = "UNet 3+ mask"  # in the NIfTI header of what is written here


@explain_exhaustion
def predict(cfg: DictConfig) -> list[Path]:
    """Predict everything that DATASET.VAL.IMAGES_PATH names, into RESULTS_PATH/predictions.

    Returns:
        The files written: masks of scans (and a contact sheet each), or masks and pictures of
        slices.

    Raises:
        UserError: nothing to predict, no weights, or weights that do not fit.
        FailedCasesError: names the scans that could not be predicted; the others are finished.
    """
    require_weights(weights_path(cfg))
    folder = output_folder(results_folder(cfg) / "predictions", "RESULTS_PATH")
    key = "DATASET.VAL.IMAGES_PATH"
    scans = find_scan_inputs(cfg.DATASET.VAL.IMAGES_PATH, Path(cfg.WORK_DIR), key)
    if scans is None:
        return _predict_slices(cfg, folder)
    return _predict_scans(cfg, scans, folder)


def segment_scan(scan: str | Path, weights: str | Path, batch_size: int = 4) -> nib.Nifti1Image:
    """The predicted mask of a NIfTI scan, on the scan's own grid, uint8 class ids.

    Network, HU window and fit are those that the weights were trained with; the mask has the scan's
    shape, affine and header. Save it with `nibabel.save(mask, "mask.nii.gz")`.

    Raises:
        UserError: the scan or the weights are missing or damaged.
    """
    model, card = model_from_weights(Path(weights))
    settings = SliceSettings(**card["preparation"])
    view = inference_view(model)
    volume = read_scan(Path(scan))
    masks = _predict_grey(view, grey_slices(volume, settings), batch_size)
    return _to_nifti(volume, masks, settings)


def _load_view(cfg: DictConfig, runtime: Runtime) -> tuple[keras.Model, dict]:
    model = prepare_model(cfg)
    card = load_weights(model, weights_path(cfg), model_identity(cfg))
    return inference_view(model, runtime.jit_compile), card


def _predict_scans(cfg: DictConfig, scans: list[Path], folder: Path) -> list[Path]:
    targets = {scan: folder / mask_name(scan) for scan in scans}
    _refuse_twins(targets)
    settings = slice_settings(cfg)
    _check_network_size(cfg, settings)
    waiting = [scan for scan in scans if cfg.OVERWRITE or not _is_there(cfg, scan, targets[scan])]
    failures, written = [], []
    if waiting:
        view, card = _load_view(cfg, setup_runtime(cfg))
        _check_preparation(card, settings)
    for scan in waiting:
        try:
            written += _predict_scan(cfg, view, scan, settings, targets[scan])
        except UserError as error:
            failures.append(str(error))
    console.print(f"{len(waiting) - len(failures)} masks: {folder}")
    if failures:
        raise FailedCasesError("\n  - ".join([f"Scans failed ({len(failures)}):", *failures]))
    return written


def _is_there(cfg: DictConfig, scan: Path, target: Path) -> bool:
    """Whether the mask of this very scan by these very weights, or one not of ours, is there."""
    if not target.is_file():
        return False
    try:
        descrip = read_scan(target).description
    except UserError:
        logger.warning(f"{target} is damaged: predicted again")
        return False
    if descrip.startswith(ORIGIN_MARK) and descrip != _origin(cfg, scan):
        logger.info(f"{target} is of another scan or other weights: predicted again")
        return False
    logger.info(f"{target} is there already; OVERWRITE=True predicts it again")
    return True


def _origin(cfg: DictConfig, scan: Path) -> str:
    """What a mask was made from, for the 80 characters of the header's description."""
    states = [file_state(path) for path in (scan, weights_path(cfg))]
    return f"{ORIGIN_MARK} {hashlib.sha256(repr(states).encode()).hexdigest()[:32]}"


def _predict_scan(
    cfg: DictConfig, view: keras.Model, scan: Path, settings: SliceSettings, target: Path
) -> list[Path]:
    case = scan_stem(scan).rsplit("-", 1)[-1]
    volume = read_scan(scan, cfg.DATA_PREPARATION.AXIS_CODES.get(case))
    for doubt in header_doubts(volume):
        logger.warning(doubt)
    grey = grey_slices(volume, settings)
    masks = _predict_grey(view, grey, cfg.HYPER_PARAMETERS.BATCH_SIZE, scan.name, cfg.VERBOSE)
    sheet = _contact_sheet(grey, masks)
    mask = _to_nifti(volume, masks, settings)
    mask.header["descrip"] = _origin(cfg, scan)
    picture = target.with_name(target.name.removesuffix(".nii.gz") + ".png")
    write_bytes(picture, encode_png(sheet))
    with atomic_path(target) as temporary:  # last: a mask that is there is not predicted again
        nib.save(mask, temporary)
    if cfg.SHOW:
        show(sheet)
    return [target, picture]


def _predict_grey(
    view: keras.Model, grey: np.ndarray, batch_size: int, name: str = "", verbose: int = 0
) -> np.ndarray:
    """Class ids of grey slices, both uint8 of shape (slices, height, width)."""
    masks = np.empty_like(grey)
    starts = range(0, len(grey), batch_size)
    for start in progress(starts, name, len(starts), "batch", verbose):
        indices = range(start, min(start + batch_size, len(grey)))
        images = normalize(np.stack([three_slices(grey, index) for index in indices]))
        masks[start : start + batch_size] = most_likely_class(view.predict_on_batch(images))
    return masks


def _to_nifti(volume: Scan, masks: np.ndarray, settings: SliceSettings) -> nib.Nifti1Image:
    _, rows, columns = volume.stored.shape
    native = restore_orientation(unfit_masks(masks, rows, columns, settings.fit), volume.axis_codes)
    header = nib.load(volume.path).header.copy()
    header.set_data_dtype(np.uint8)
    header.set_slope_inter(1, 0)
    header["cal_min"] = header["cal_max"] = 0  # the display window was the scan's
    return nib.Nifti1Image(np.ascontiguousarray(native), volume.affine, header)


def _contact_sheet(grey: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Slices spread over what was found, or over the whole scan where nothing was."""
    found = np.flatnonzero(masks.any(axis=(1, 2)))
    first, last = (found[0], found[-1]) if found.size else (0, len(masks) - 1)
    chosen = np.unique(np.linspace(first, last, SHEET_SLICES).round().astype(int))
    return contact_sheet(
        [
            overlay(np.repeat(image[..., None], 3, axis=2), masks[index])
            for image, index in zip(grey[chosen], chosen, strict=True)
        ]
    )


def _refuse_twins(targets: dict[Path, Path]) -> None:
    first: dict[Path, Path] = {}
    for scan, target in targets.items():
        if (other := first.setdefault(target, scan)) is not scan:
            raise UserError(
                f"DATASET.VAL.IMAGES_PATH: {other} and {scan} would both be written to {target}; "
                "predict them in two runs with different RESULTS_PATH"
            )


def _check_network_size(cfg: DictConfig, settings: SliceSettings) -> None:
    if (settings.height, settings.width) != (cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH):
        raise UserError(
            "DATA_PREPARATION.RESIZED_HEIGHT and RESIZED_WIDTH: found "
            f"{settings.height} x {settings.width}; scans are predicted at INPUT.HEIGHT x "
            f"INPUT.WIDTH = {cfg.INPUT.HEIGHT} x {cfg.INPUT.WIDTH}"
        )
    if cfg.INPUT.CHANNELS != 3:
        raise UserError(
            f"INPUT.CHANNELS: found {cfg.INPUT.CHANNELS}; scans are predicted from three "
            "neighbouring slices, INPUT.CHANNELS=3"
        )


def _check_preparation(card: dict, settings: SliceSettings) -> None:
    trained = card.get("preparation", {})
    keys = {"hu_min": "SCAN_MIN_VALUE", "hu_max": "SCAN_MAX_VALUE", "fit": "FIT"}
    differences = [
        f"DATA_PREPARATION.{key}: found {getattr(settings, name)}; trained with {trained[name]}"
        for name, key in keys.items()
        if name in trained and trained[name] != getattr(settings, name)
    ]
    if differences:
        raise UserError.listing("The weights were trained on other slices", differences)


def _predict_slices(cfg: DictConfig, folder: Path) -> list[Path]:
    """Masks as PNG of class ids at the size of the image file, and panels to look at."""
    runtime = setup_runtime(cfg)
    split = get_data_generator(cfg, "VAL", runtime)
    names = [pair.image.stem for pair in split.pairs]
    if len(set(names)) < len(names):
        raise UserError("DATASET.VAL.IMAGES_PATH: two images have one name; predict them apart")
    view, _ = _load_view(cfg, runtime)
    written = []
    batches = progress(split.dataset, "Predicting", split.steps, "batch", cfg.VERBOSE)
    for index, (images, truths) in enumerate(batches):
        predictions = most_likely_class(view.predict_on_batch(images))
        pairs = split.dataset.batch_pairs(index)
        for pair, image, truth, mask in zip(pairs, images, truths, predictions, strict=True):
            shown = to_rgb(np.rint(image * 255).astype(np.uint8), cfg.SHOW_CENTER_CHANNEL_IMAGE)
            picture = panel(dict(_panel_parts(shown, truth if pair.mask else None, mask)))
            with Image.open(pair.image) as file:
                width, height = file.size
            stem = pair.image.stem
            outputs = {
                folder / "masks" / f"{image_to_mask_name(stem)}.png": resize_mask(
                    mask, height, width
                ),
                folder / "pictures" / f"{stem}.png": picture,
            }
            for path, array in outputs.items():
                write_bytes(path, encode_png(array))
            written += outputs
            if cfg.SHOW:
                show(picture)
    console.print(f"{len(written) // 2} masks and pictures: {folder}")
    return written


def _panel_parts(
    shown: np.ndarray, truth: np.ndarray | None, prediction: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    yield "image", shown
    if truth is not None:
        yield "truth", overlay(shown, truth)
    yield "prediction", overlay(shown, prediction)


if __name__ == "__main__":
    run_command(predict)

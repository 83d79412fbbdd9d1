"""LiTS scans → PNG slices for training and validation.

Usage, from the project's folder:
    python data_preparation/preprocess_data.py [DATA_PREPARATION.FIT=crop ...]
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from tqdm import tqdm

if not __package__:  # run by path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data_preparation.case_records import cases_file, file_state, read_cases, write_cases
from data_preparation.prepare_case import (
    CaseJob,
    SliceFolders,
    existing_slices,
    slice_files,
    try_case,
)
from data_preparation.processes import run_in_processes
from data_preparation.scan_inputs import ScanFiles, ScanFolder, find_scans
from data_preparation.slices import slice_settings
from utils.cli import run_command
from utils.errors import FailedCasesError, UserError
from utils.folder_lock import lock_folder
from utils.log import logger, progress
from utils.paths import resolve_path

SPLITS = ("TRAIN", "VAL")


@dataclass(frozen=True)
class Split:
    """A folder of scans and what is there of its slices.

    Attributes:
        name: TRAIN or VAL.
        scans: what the scan folder holds.
        folders: where the slices go.
        records: the cases that cases.json calls finished, by case id.
    """

    name: str
    scans: ScanFolder
    folders: SliceFolders
    records: dict[str, dict[str, Any]]


def preprocess_data(cfg: DictConfig) -> None:
    """Prepare the scans of both splits; cases that are finished already are left alone.

    Raises:
        UserError: a folder is missing or unsuitable; nothing has been written.
        FailedCasesError: names the cases that failed; all others are finished.
    """
    splits = _find_splits(cfg)
    _warn_about_unused_axis_codes(cfg, splits)
    failures = []
    for split in splits:
        with lock_folder(split.folders.images.parent, f"DATASET.{split.name}.IMAGES_PATH"):
            failed = _prepare_split(split, cfg)
        failures += [f"{split.name} case {case}: {reason}" for case, reason in failed.items()]
    if failures:
        raise FailedCasesError("\n  - ".join([f"Cases failed ({len(failures)}):", *failures]))


def _prepare_split(split: Split, cfg: DictConfig) -> dict[str, str]:
    """Prepare what is not finished; returns the reasons of the cases that failed."""
    jobs, failures = _jobs(split, cfg)
    _warn_about_strays(split, {*jobs, *failures})
    present = existing_slices(split.folders)
    redone = {
        case: job
        for case, job in jobs.items()
        if not _is_finished(job, split.records.get(case), present[case])
    }
    logger.info(
        f"{split.name}: {len(redone)} cases to prepare, {len(jobs) - len(redone)} finished "
        f"already; slices in {split.folders.images}"
    )
    records = {
        case: record
        for case, record in split.records.items()
        if case not in redone and case not in failures
    }
    if records != split.records:
        write_cases(cases_file(split.folders.images), records)
    _remove_slices(split.folders, {*redone, *failures})

    workers = cfg.DATA_PREPARATION.WORKERS or os.cpu_count() or 1
    results = run_in_processes(try_case, redone.values(), workers)
    for job, result in progress(results, split.name, len(redone), "case", cfg.VERBOSE):
        case = job.files.case
        if result is None:
            failures[case] = f"{job.files.volume}: its process died; is there enough memory?"
        elif result.record is None:
            failures[case] = result.failure
        else:
            records[case] = result.record
            write_cases(cases_file(split.folders.images), records)
            for warning in result.record["warnings"]:
                with tqdm.external_write_mode(sys.stderr):
                    logger.warning(warning)
    _remove_slices(split.folders, failures)
    return failures


def _find_splits(cfg: DictConfig) -> list[Split]:
    splits = [
        _find_split(cfg, name)
        for name in SPLITS
        if cfg.DATA_PREPARATION[f"SCANS_{name}_DATA_PATH"] is not None
    ]
    if not splits:
        raise UserError(
            "DATA_PREPARATION.SCANS_TRAIN_DATA_PATH and SCANS_VAL_DATA_PATH: both are null; "
            "set at least one to a folder of scans"
        )
    _refuse_shared_folders(splits)
    return splits


def _find_split(cfg: DictConfig, name: str) -> Split:
    key = f"SCANS_{name}_DATA_PATH"
    try:
        scans = find_scans(resolve_path(cfg.DATA_PREPARATION[key], cfg.WORK_DIR))
    except UserError as error:
        raise UserError(f"DATA_PREPARATION.{key}: {error}; null skips this split") from None
    folders = SliceFolders(
        _output_folder(cfg, name, "IMAGES_PATH"), _output_folder(cfg, name, "MASK_PATH")
    )
    records = cases_file(folders.images)
    return Split(name, scans, folders, read_cases(records) if records.exists() else {})


def _output_folder(cfg: DictConfig, split: str, key: str) -> Path:
    value = cfg.DATASET[split][key]
    if not isinstance(value, str):
        raise UserError(f"DATASET.{split}.{key}: found {value}; slices are written into a folder")
    return resolve_path(value, cfg.WORK_DIR)


def _refuse_shared_folders(splits: list[Split]) -> None:
    keys_by_output: dict[Path, str] = {}
    for split in splits:
        outputs = {
            f"DATASET.{split.name}.IMAGES_PATH": split.folders.images,
            f"DATASET.{split.name}.MASK_PATH": split.folders.masks,
            f"the folder above DATASET.{split.name}.IMAGES_PATH": cases_file(split.folders.images),
        }
        for key, output in outputs.items():
            first = keys_by_output.setdefault(output.resolve(), key)
            if first != key:
                raise UserError(f"{first} and {key}: both are {output}; give each its own")


def _jobs(split: Split, cfg: DictConfig) -> tuple[dict[str, CaseJob], dict[str, str]]:
    """What is to be done, and the reasons against it, by case id."""
    axis_codes = cfg.DATA_PREPARATION.AXIS_CODES
    jobs, failures = {}, dict(split.scans.failures)
    for files in split.scans.scans:
        try:
            sources = _sources(files)
        except UserError as error:
            failures[files.case] = str(error)
            continue
        jobs[files.case] = CaseJob(
            files=files,
            sources=sources,
            folders=split.folders,
            settings=slice_settings(cfg),
            labels=str(cfg.DATA_PREPARATION.LABELS),
            axis_codes=axis_codes.get(files.case),
        )
    return jobs, failures


def _sources(files: ScanFiles) -> dict[str, Any]:
    if files.segmentation is None:
        raise UserError(f"{files.volume}: found no segmentation-{files.case}.nii[.gz] beside it")
    try:
        return {
            "volume": file_state(files.volume),
            "segmentation": file_state(files.segmentation),
        }
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from None


def _is_finished(job: CaseJob, record: dict[str, Any] | None, present: set[Path]) -> bool:
    if record is None:
        return False
    is_same = record["sources"] == job.sources and record["parameters"] == job.parameters
    expected = {
        file
        for index in range(record["slices"])
        for file in slice_files(job.folders, job.files.case, index)
    }
    return is_same and expected == present


def _remove_slices(folders: SliceFolders, cases: Iterable[str]) -> None:
    present = existing_slices(folders)
    for case in cases:
        for file in present[case]:
            file.unlink()


def _warn_about_strays(split: Split, cases: set[str]) -> None:
    for orphan in split.scans.orphans:
        logger.warning(f"{orphan}: no volume belongs to this mask")
    strays = sorted((split.records.keys() | existing_slices(split.folders).keys()) - cases)
    if strays:
        logger.warning(
            f"{split.folders.images} has slices of cases that are not among the scans, which "
            f"training will use: {', '.join(strays)}"
        )


def _warn_about_unused_axis_codes(cfg: DictConfig, splits: list[Split]) -> None:
    known = {files.case for split in splits for files in split.scans.scans}
    for case in cfg.DATA_PREPARATION.AXIS_CODES:
        if case not in known:
            logger.warning(f"DATA_PREPARATION.AXIS_CODES.{case}: there is no scan of this case")


if __name__ == "__main__":
    run_command(preprocess_data)

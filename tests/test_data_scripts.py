import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent
INSIDE = "media/nas/01_Datasets/CT/LITS/Training Batch"  # as the LiTS archives have it
EXTRACT = "extract_data.sh"
DELETE_SCANS = "delete_extracted_scans_data.sh"
DELETE_ZIPS = "delete_zip_data.sh"


@pytest.fixture
def project(tmp_path):
    """A copy of the scripts in a project whose path has spaces, with two LiTS-like archives."""
    root = tmp_path / "my project $HOME"
    (root / "configs").mkdir(parents=True)
    (root / "configs/config.yaml").touch()
    (root / "data_preparation").mkdir()
    for name in (EXTRACT, DELETE_SCANS, DELETE_ZIPS, "lits_folder.sh", "unzip_scans.py"):
        shutil.copy(SOURCE / "data_preparation" / name, root / "data_preparation" / name)
    (root / "data").mkdir()
    for batch, case in ((1, 0), (2, 28)):
        archive(
            root / f"data/Training_Batch{batch}.zip",
            {
                f"{INSIDE} {batch}/volume-{case}.nii": f"volume {case}",
                f"{INSIDE} {batch}/segmentation-{case}.nii.gz": f"mask {case}",
                f"{INSIDE} {batch}/._volume-{case}.nii": "left by a file manager",
                f"{INSIDE} {batch}/notes.txt": "not a scan",
            },
        )
    return root


def archive(path: Path, members: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as content:
        for name, text in members.items():
            content.writestr(name, text)


def run(project: Path, script: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    command = ["bash", str(project / "data_preparation" / script)]
    if cwd is None:  # as users do
        command, cwd = ["bash", f"data_preparation/{script}"], project
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


EXTRACTED = [
    "Training Batch 1",
    "Training Batch 1/segmentation-0.nii.gz",
    "Training Batch 1/volume-0.nii",
    "Training Batch 2",
    "Training Batch 2/segmentation-28.nii.gz",
    "Training Batch 2/volume-28.nii",
]
ZIPS = ["Training_Batch1.zip", "Training_Batch2.zip"]


def test_archives_become_two_folders_of_scans(project):
    result = run(project, EXTRACT)
    assert result.returncode == 0, result.stderr
    assert tree(project / "data") == sorted(EXTRACTED + ZIPS)
    assert (project / "data/Training Batch 2/volume-28.nii").read_text() == "volume 28"


def test_a_second_extraction_changes_nothing(project):
    run(project, EXTRACT)
    (project / "data/Training Batch 1/volume-0.nii").write_text("mine")
    result = run(project, EXTRACT)
    assert result.returncode == 0
    assert "is there already" in result.stdout
    assert (project / "data/Training Batch 1/volume-0.nii").read_text() == "mine"


def test_the_scripts_find_their_project_from_any_folder(project, tmp_path):
    assert run(project, EXTRACT, cwd=tmp_path).returncode == 0
    assert tree(project / "data") == sorted(EXTRACTED + ZIPS)


def test_other_spellings_of_the_archives_are_found(project):
    data = project / "data"
    (data / "Training_Batch1.zip").rename(data / "Training Batch 1.zip")
    (data / "Training_Batch2.zip").rename(data / "LITS-training-2.zip")
    assert run(project, EXTRACT).returncode == 0
    assert [name for name in tree(data) if ".zip" not in name] == EXTRACTED


def test_one_archive_is_enough_and_none_is_not(project):
    (project / "data/Training_Batch2.zip").unlink()
    result = run(project, EXTRACT)
    assert result.returncode == 0
    assert "no zip file of batch 2" in result.stderr

    shutil.rmtree(project / "data/Training Batch 1")
    (project / "data/Training_Batch1.zip").unlink()
    result = run(project, EXTRACT)
    assert result.returncode == 2
    assert "nothing to extract" in result.stderr


def test_two_archives_of_a_batch_are_refused(project):
    shutil.copy(project / "data/Training_Batch1.zip", project / "data/Training Batch 1 (2).zip")
    result = run(project, EXTRACT)
    assert result.returncode == 2
    assert "keep one zip file for batch 1" in result.stderr


def test_no_member_of_an_archive_leads_outside(project, tmp_path):
    archive(
        project / "data/Training_Batch1.zip",
        {
            "../../../volume-1.nii": "a",
            f"{tmp_path}/volume-2.nii": "b",
            "..\\..\\volume-3.nii": "c",
        },
    )
    before = tree(tmp_path)
    assert run(project, EXTRACT).returncode == 0
    assert {name for name in tree(tmp_path) if name not in before} == {
        f"my project $HOME/data/{name}"
        for name in (
            *EXTRACTED[3:],
            "Training Batch 1",
            "Training Batch 1/volume-1.nii",
            "Training Batch 1/volume-2.nii",
            "Training Batch 1/volume-3.nii",
        )
    }


def _truncated(path):
    path.write_bytes(path.read_bytes()[:-40])


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"volume-0.nii") + 14] ^= 0xFF  # in the compressed data
    path.write_bytes(content)


def _twins(path):
    archive(path, {"a/volume-0.nii": "a", "b/volume-0.nii": "b"})


def _without_scans(path):
    archive(path, {"notes.txt": "a"})


@pytest.mark.parametrize("spoil", [_truncated, _flipped, _twins, _without_scans])
def test_a_bad_archive_leaves_nothing_behind(project, spoil):
    spoil(project / "data/Training_Batch1.zip")
    result = run(project, EXTRACT)
    assert result.returncode == 2
    assert "Training_Batch1.zip: " in result.stderr
    assert "Traceback" not in result.stderr
    assert tree(project / "data") == ZIPS


def test_deleting_scans_leaves_everything_else(project):
    run(project, EXTRACT)
    for name in ("Training Batch 10", "train/images", "Training Batch 1 backup"):
        (project / "data" / name).mkdir(parents=True)
    result = run(project, DELETE_SCANS)
    assert result.returncode == 0, result.stderr
    assert tree(project / "data") == sorted(
        [*ZIPS, "Training Batch 10", "Training Batch 1 backup", "train", "train/images"]
    )
    assert run(project, DELETE_SCANS).returncode == 0  # nothing left to do


def test_deleting_archives_leaves_everything_else(project):
    run(project, EXTRACT)
    for name in ("other.zip", "Training_Batch12.zip", "Training_Batch1.zip.part"):
        (project / "data" / name).touch()
    (project / "data/Training_1\nother.zip").touch()
    (project / "other.zip").touch()
    result = run(project, DELETE_ZIPS)
    assert result.returncode == 0, result.stderr
    assert tree(project / "data") == sorted(
        [*EXTRACTED, "other.zip", "Training_Batch12.zip", "Training_Batch1.zip.part"]
    )
    assert (project / "other.zip").exists()


def test_of_a_link_only_the_link_is_deleted(project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "volume-0.nii").touch()
    (project / "data/Training Batch 1").symlink_to(elsewhere)
    assert run(project, DELETE_SCANS).returncode == 0
    assert tree(project / "data") == ZIPS
    assert (elsewhere / "volume-0.nii").exists()


@pytest.mark.parametrize("script", [EXTRACT, DELETE_SCANS, DELETE_ZIPS])
def test_a_data_folder_outside_the_project_is_left_alone(project, tmp_path, script):
    (project / "data").rename(tmp_path / "big disk")
    (tmp_path / "big disk/Training Batch 2").mkdir()
    (project / "data").symlink_to(tmp_path / "big disk")
    before = tree(tmp_path / "big disk")
    result = run(project, script)
    assert result.returncode == 2
    assert "leads outside the project" in result.stderr
    assert tree(tmp_path / "big disk") == before


@pytest.mark.parametrize("script", [EXTRACT, DELETE_SCANS, DELETE_ZIPS])
@pytest.mark.parametrize(
    ("missing", "message"),
    [("configs", "is not the project's folder"), ("data", "data not found")],
)
def test_scripts_without_a_project_or_data_do_nothing(project, script, missing, message):
    shutil.rmtree(project / missing)
    before = tree(project)
    result = run(project, script)
    assert result.returncode == 2
    assert message in result.stderr
    assert tree(project) == before

"""Weights are data and archives hold scans: files that try to do harm do none."""

import pickle
import stat
import zipfile
from pathlib import Path

import keras
import pytest

from data_preparation import unzip_scans
from models.weights import IDENTITY_KEYS, card_path, load_weights
from utils.errors import UserError
from utils.paths import write_json


class Harm:
    """Runs code when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("kind", ["pickle", "keras"])
def test_weight_files_run_no_code(tmp_path, kind):
    marker, weights = tmp_path / "harm", tmp_path / "model.weights.h5"
    image = keras.Input((2,))
    model = keras.Model(image, keras.layers.Dense(1)(image))
    if kind == "pickle":
        weights.write_bytes(pickle.dumps(Harm(marker)))
    else:
        path = str(marker)
        code = keras.layers.Lambda(
            lambda x, path=path: __import__("os").mkdir(path) or x, output_shape=(2,)
        )
        keras.Model(image, code(image)).save(tmp_path / "model.keras")
        (tmp_path / "model.keras").rename(weights)
    write_json(card_path(weights), {})
    with pytest.raises(UserError, match="model.weights.h5: cannot be loaded"):
        load_weights(model, weights, dict.fromkeys(IDENTITY_KEYS) | {"input_scaling": "none"})
    assert not marker.exists()


def archive(path: Path, members: dict[str, bytes], link: str | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
        if link is not None:
            member = zipfile.ZipInfo(link)
            member.external_attr = (stat.S_IFLNK | 0o777) << 16
            file.writestr(member, "/etc/passwd")
    return path


def test_archives_lead_nowhere_else(tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    members = {
        "../../volume-0.nii": b"0",
        "/tmp/volume-1.nii": b"1",
        "..\\volume-2.nii": b"2",
        "a/.hidden.nii": b"",
        "volume-3.NII": b"3",
    }
    path = archive(tmp_path / "a.zip", members, link="volume-4.nii")
    assert unzip_scans.unzip_scans(path, folder) == 5
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert contents == {
        "volume-0.nii": b"0",
        "volume-1.nii": b"1",
        "volume-2.nii": b"2",
        "volume-3.NII": b"3",
        "volume-4.nii": b"/etc/passwd",
    }
    assert not any(file.is_symlink() for file in folder.iterdir())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.zip", "scans"]


def test_archives_larger_than_the_disk_are_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    folder = tmp_path / "scans"
    folder.mkdir()
    usage = type("Usage", (), {"free": 1999})
    monkeypatch.setattr(unzip_scans.shutil, "disk_usage", lambda path: usage)
    path = archive(tmp_path / "a.zip", {"volume-0.nii": bytes(1000), "volume-1.nii": bytes(1000)})
    with pytest.raises(ValueError, match="has 2,000 bytes of scans; the disk has 1,999 free"):
        unzip_scans.unzip_scans(path, folder)
    assert list(folder.iterdir()) == []

"""Path rules, writing in one step, natural order."""

import json

import pytest

from utils.errors import UserError
from utils.paths import atomic_path, natural_key, read_json, resolve_path, write_json


def test_relative_paths_lie_under_the_work_directory(tmp_path):
    assert resolve_path("data/x", tmp_path) == tmp_path / "data" / "x"


def test_the_predecessors_leading_slash_means_the_work_directory(tmp_path):
    assert resolve_path("/no_such_root/images", tmp_path) == tmp_path / "no_such_root" / "images"
    assert resolve_path("/checkpoint_x", tmp_path) == tmp_path / "checkpoint_x"


def test_absolute_paths_that_exist_stay(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    assert resolve_path(outside, tmp_path / "work") == outside


def test_new_outputs_in_an_existing_folder_stay_absolute(tmp_path):
    assert resolve_path(tmp_path / "results", tmp_path / "work") == tmp_path / "results"


def test_paths_already_under_the_work_directory_are_not_prefixed_twice(tmp_path):
    inside = tmp_path / "a" / "b" / "c"
    assert resolve_path(inside, tmp_path) == inside


def test_what_exists_under_the_work_directory_wins_over_a_new_absolute_path(tmp_path):
    work = tmp_path / "work"
    wanted = work / tmp_path.relative_to("/") / "images"
    wanted.mkdir(parents=True)
    assert resolve_path(tmp_path / "images", work) == wanted


def test_atomic_path_leaves_nothing_behind_on_failure(tmp_path):
    target = tmp_path / "deep" / "file.weights.h5"
    target.parent.mkdir()
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        assert temporary.name.endswith(".file.weights.h5")
        temporary.write_text("half")
        raise RuntimeError
    assert [path.name for path in target.parent.iterdir()] == ["file.weights.h5"]
    assert target.read_text() == "old"


def test_atomic_path_takes_folders_too(tmp_path):
    target = tmp_path / "network"
    for content in ("old", "new"):
        with atomic_path(target) as temporary:
            (temporary / "variables").mkdir(parents=True)
            (temporary / "variables" / content).touch()
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        temporary.mkdir()
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["network", "variables", "new"]


def test_json_round_trip_and_messages(tmp_path):
    path = tmp_path / "a" / "b.json"
    write_json(path, {"é": [1, None]})
    assert read_json(path, "The file") == json.loads(path.read_text()) == {"é": [1, None]}
    with pytest.raises(UserError, match="The list not found"):
        read_json(tmp_path / "missing.json", "The list")
    path.write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        read_json(path, "The file")


def test_natural_order():
    names = ["image_1_10.png", "image_1_9.png", "image_0_100.png", "a", "10", "9", ""]
    assert sorted(names, key=natural_key) == [
        "", "9", "10", "a", "image_0_100.png", "image_1_9.png", "image_1_10.png",
    ]  # fmt: skip

"""The architecture: who may import whom, and where configuration and TensorFlow may appear."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = {
    "configs": set(),
    "utils": {"configs"},
    "losses": {"utils"},
    "callbacks": {"utils"},
    "data_generators": {"utils"},
    "data_preparation": {"utils"},
    "models": {"losses", "utils"},
}
SCRIPTS = {path.stem for path in ROOT.glob("*.py")}
MODULES = [path for package in LAYERS for path in (ROOT / package).rglob("*.py")]


def imported(path: Path) -> set[str]:
    """Top names of everything that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_the_table_covers_every_package():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert packages == set(LAYERS)
    assert {"train", "evaluate", "predict"} <= SCRIPTS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_import_only_what_lies_below(path):
    package = path.relative_to(ROOT).parts[0]
    forbidden = (set(LAYERS) | SCRIPTS | {"tests"}) - LAYERS[package] - {package}
    assert imported(path) & forbidden == set()


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_scripts_do_not_import_each_other(script):
    assert imported(ROOT / f"{script}.py") & SCRIPTS == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tensorflows_devices_and_strategies_are_set_up_in_one_place(path):
    text = path.read_text(encoding="utf-8")
    if path != ROOT / "utils" / "runtime.py":
        assert "tf.config" not in text
        assert "tf.distribute.MirroredStrategy" not in text


def test_data_preparation_starts_without_tensorflow():
    for path in (ROOT / "data_preparation").glob("*.py"):
        assert not imported(path) & {"keras", "tensorflow"}, path

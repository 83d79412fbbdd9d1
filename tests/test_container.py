"""The Dockerfile as far as it can be checked without Docker: shell, files, versions."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
STUB_PIP = """#!/bin/bash
case "$1" in
    install) echo "$@" > arguments; cp "$HOME/after" "$HOME/now" ;;
    list) cat "$HOME/now" ;;
esac
"""
SHIPPED = "keras==3.3.3\nnumpy==1.26.4\nnvidia-dali-cuda120==1.46.0\ntensorflow==2.17.0+nv25.2\n"


def instructions(name: str) -> list[str]:
    """The arguments of every `name` instruction, with continued lines joined."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", "")
    return re.findall(rf"^{name} (.*)", joined, flags=re.MULTILINE)


def requirements(file: str) -> dict[str, Requirement]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    parsed = [Requirement(line) for line in lines if line and line[0] not in "#-"]
    return {requirement.name: requirement for requirement in parsed}


@pytest.mark.parametrize("step", instructions("RUN"))
def test_shell_steps_parse(step):
    done = subprocess.run(["bash", "-n", "-c", step], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_copied_exists_and_is_not_ignored():
    copied = [
        word
        for line in instructions("COPY")
        for word in line.split()[:-1]
        if not word.startswith("--")
    ]
    assert "constraints-ngc.txt" in copied
    for source in copied:
        assert (ROOT / source).exists()
        assert source.split("/")[0] not in IGNORED


def test_data_and_results_stay_out_of_the_image():
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    folders = [line.strip("/") for line in lines if line.startswith("/")]
    assert {"data", "checkpoint", "results"} <= set(folders) <= set(IGNORED)


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-export.txt"])
def test_constraints_of_the_image_allow_what_is_required(file):
    constraints = requirements("constraints-ngc.txt")
    shared = requirements(file).keys() & constraints.keys()
    for name in shared:
        both = requirements(file)[name].specifier & constraints[name].specifier
        bounds = ["0", *(specifier.version for specifier in both)]
        assert any(map(both.contains, bounds)), f"{name}: {both}"
    assert shared or file != "requirements.txt"


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (SHIPPED.replace("keras==3.3.3", "hydra-core==1.3.8\nkeras==3.12.4"), 0),
        (SHIPPED.replace("numpy==1.26.4", "numpy==2.4.0"), 1),
        (SHIPPED + "nvidia-cudnn-cu12==9.3.0\n", 1),
        (SHIPPED.replace("2.17.0+nv25.2", "2.21.0"), 1),
    ],
)
def test_the_build_fails_if_what_nvidia_shipped_has_changed(tmp_path, after, code):
    step = instructions("RUN")[0]
    home = tmp_path / "home"
    home.mkdir()
    (home / "now").write_text(SHIPPED)
    (home / "after").write_text(after)
    (home / "pip").write_text(STUB_PIP)
    (home / "pip").chmod(0o755)
    environment = {"HOME": str(home), "PATH": f"{home}:{Path(shutil.which('sort')).parent}:/bin"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", step], cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == code
    pinned = (tmp_path / "shipped.txt").read_text().split()
    assert pinned == [line for line in SHIPPED.split() if not line.startswith("keras")]
    assert "-c shipped.txt" in (tmp_path / "arguments").read_text()

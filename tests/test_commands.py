"""Every command and link in every Markdown file: run or looked up by a test, or marked."""

import re
import subprocess

import pytest

from tests.markdown import ROOT, code_blocks

FILES = ["README.md", "CONTRIBUTING.md", *(f"{path.parent.name}/README.md" for path in
         sorted(ROOT.glob("*/README.md")))]  # fmt: skip
# A line with one of these is run by no test
MARK = re.compile(r"needs (LiTS|a GPU|Docker|a quiet machine)")
COMMAND = re.compile(r"\b(python(?: -m)?|bash|make|docker|srun) ([\w./-]+)")
TESTS = [path for path in (ROOT / "tests").glob("*.py") if path.name != "test_commands.py"]
# What tests name, and the blocks of the README that test_readme.py runs line by line
TESTED = [*(path.read_text(encoding="utf-8") for path in TESTS), *code_blocks("README.md", "sh")]


def commands(file: str) -> set[tuple[str, str]]:
    """Runner and program of every unmarked command, in shell blocks and in running text."""
    found, fence = set(), None
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fence = None if fence else line.removeprefix("```") or "text"
        elif not MARK.search(line):
            if fence is None:
                matches = map(COMMAND.match, re.findall("`([^`]+)`", line))
                found |= {match.groups() for match in matches if match}
            elif fence in ("sh", "bash"):
                found |= set(COMMAND.findall(line))
    return found


ALL = sorted({command for file in FILES for command in commands(file)})


def test_the_files_are_found_and_have_commands():
    folders = ("benchmarks", "configs", "data_generators", "data_preparation")
    assert {f"{folder}/README.md" for folder in folders} <= set(FILES)
    assert {("python", "train.py"), ("make", "demo"), ("make", "docs")} <= set(ALL)
    assert ("bash", "data_preparation/delete_zip_data.sh") in ALL
    assert ("docker", "build") not in ALL  # marked


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_every_command_exists_and_is_tested(command):
    runner, program = command
    if runner == "make":
        dry = ["make", "--dry-run", program]
        assert subprocess.run(dry, cwd=ROOT, capture_output=True, check=False).returncode == 0
        return
    assert runner in ("python", "python -m", "bash")
    is_module = runner == "python -m"
    file = ROOT / (f"{program.replace('.', '/')}.py" if is_module else program)
    assert file.is_file()
    assert any((program if is_module else file.name) in text for text in TESTED)


@pytest.mark.parametrize("file", FILES)
def test_links_lead_to_files_that_exist(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    missing = [
        target
        for target in targets
        if "://" not in target and not ((ROOT / file).parent / target).exists()
    ]
    assert missing == []

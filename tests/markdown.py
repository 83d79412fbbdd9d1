"""What the Markdown files of the project tell a reader to run."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def code_blocks(file: str, language: str) -> list[str]:
    """The fenced blocks of one language in a Markdown file of the project."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)

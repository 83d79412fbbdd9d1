"""The tables of benchmarks/README.md, from the results: `python -m benchmarks.readme`."""

import json
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS
from utils.markdown import markdown_table
from utils.paths import write_bytes

README = Path(__file__).with_name("README.md")
START, END = "<!-- results -->\n", "<!-- end of results -->\n"


def results_text(folder: Path = RESULTS) -> str:
    """A section with machine, date, load and table per result in `folder`, in order of the names.

    Markdown; ends with a newline.
    """
    return "\n".join(
        _section(json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob("*.json"))
    )


def with_results(readme: str, results: str) -> str:
    """`readme` with `results` between its two marks instead of what was there."""
    before, rest = readme.split(START)
    return f"{before}{START}\n{results}\n{END}{rest.split(END)[1]}"


def _section(result: dict[str, Any]) -> str:
    columns = list(result["rows"][0])
    versions = result["versions"]
    lines = [
        f"### {result['title']}",
        "",
        f"{result['date']}, {', '.join([*result['gpus'], result['processor']])}, "
        f"{result['cores']} cores, load at the end {result['load']}; "
        f"Python {versions['python']}, TensorFlow {versions['tensorflow']}, "
        f"Keras {versions['keras']}, NumPy {versions['numpy']}",
        "",
        markdown_table(
            columns, ([row[column] for column in columns] for row in result["rows"]), len(columns)
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Write the tables into README.md."""
    text = with_results(README.read_text(encoding="utf-8"), results_text())
    write_bytes(README, text.encode())


if __name__ == "__main__":
    main()

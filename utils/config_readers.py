"""Which files of the project read a configuration key, found in their source."""

import ast
from collections.abc import Iterator
from pathlib import Path

WHOLE = ("items", "keys", "values")  # methods of a section that read all of it
KeyPath = tuple[str, ...]  # of a key, such as ("MODEL", "TYPE"); "*" stands for a computed part


def readers(root: Path) -> dict[str, set[KeyPath]]:
    """The paths that each Python file under `root` reads; tests and hidden folders left out."""
    folders = [path for path in root.iterdir() if path.is_dir() and path.name[0] != "."]
    inner = [file for path in folders if path.name != "tests" for file in path.rglob("*.py")]
    return {
        str(path.relative_to(root)): paths_read(path.read_text(encoding="utf-8"))
        for path in sorted([*root.glob("*.py"), *inner])
    }


def is_read(key: KeyPath, paths: set[KeyPath]) -> bool:
    """Whether one of `paths` is that of `key`, of something in it, or of a section around it."""
    return any(
        all(part in (wanted, "*") for part, wanted in zip(path, key, strict=False))
        for path in paths
    )


def paths_read(source: str) -> set[KeyPath]:
    """What Python code reads below a variable named `cfg`.

    A name that a function gives to a section (`loss = cfg.LOSS`) is followed within the function. A
    section counts as read only where nothing in it is read by name.
    """
    found: set[KeyPath] = set()
    for scope in ast.walk(ast.parse(source)):
        if isinstance(scope, ast.FunctionDef):
            names: dict[str, KeyPath] = {"cfg": ()}
            for node in ast.walk(scope):
                names |= dict(_sections_named(node, names))
            found |= {path for node in ast.walk(scope) if (path := _path(node, names))}
    return {path for path in found if not any(_extends(other, path) for other in found)}


def _extends(longer: KeyPath, shorter: KeyPath) -> bool:
    return len(longer) > len(shorter) and longer[: len(shorter)] == shorter


def _sections_named(node: ast.AST, names: dict[str, KeyPath]) -> Iterator[tuple[str, KeyPath]]:
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        targets, values = (getattr(side, "elts", [side]) for side in (target, value))
        for name, part in zip(targets, values, strict=False):
            if isinstance(name, ast.Name) and (path := _path(part, names)):
                yield name.id, path


def _path(node: ast.AST, names: dict[str, KeyPath]) -> KeyPath | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute | ast.Subscript):
        above = _path(node.value, names)
        if isinstance(node, ast.Attribute) and node.attr in WHOLE:
            return above
        part = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", "*")
        return None if above is None else (*above, str(part))
    return None

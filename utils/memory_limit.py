"""A limit of a process's own memory, so that too much ends this process and no other."""

import re
import resource
from pathlib import Path

_SHARE = 0.9  # of the available memory; the rest is for what grows elsewhere meanwhile
_LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")  # of control groups, version 2 and 1


def limit_memory() -> None:
    """Let this process allocate no more than what is available now.

    Allocations beyond it fail at once: TensorFlow raises ResourceExhaustedError, libraries throw
    bad_alloc. Without it Linux promises more than there is and kills some process in the end.
    Does nothing where the system does not tell what is available.
    """
    available = available_memory()
    if available is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(_SHARE * available), hard))


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that processes can still get without swapping, None where Linux does not say.

    That is what the machine has left, or the limit of the control group (of a container, or a job
    of a cluster) where that is less. `root` is the root of the file system.
    """
    meminfo = root / "proc/meminfo"
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read(meminfo), flags=re.MULTILINE)
    limits = [int(found[1]) * 1024] if found else []
    for folder in _control_groups(root):
        limits += [int(text) for name in _LIMIT_FILES if (text := _read(folder / name)).isdigit()]
    return min(limits, default=None)


def _control_groups(root: Path) -> list[Path]:
    """The control groups that hold this process, and those that hold these in turn."""
    base = root / "sys/fs/cgroup"
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        mount = base / controllers
        if controllers in ("", "memory"):
            own = mount / group.lstrip("/")
            folders += [own, *(parent for parent in own.parents if parent.is_relative_to(mount))]
    return folders


def _read(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""

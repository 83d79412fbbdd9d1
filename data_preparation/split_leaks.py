"""What must not be in two splits at once: a case, or a slice under two names."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from utils.images import case_and_slice
from utils.paths import natural_key


class SliceContent(NamedTuple):
    """An image file and what tells its bytes from others'; None where they tell nothing."""

    file: Path
    digest: str | None

    @property
    def case(self) -> str:
        """The case it belongs to."""
        return case_and_slice(self.file)[0]


def find_leaks(splits: dict[str, Sequence[SliceContent]]) -> list[str]:
    """A sentence for every two splits that share cases, and for cases that share slices."""
    sentences: list[str] = []
    for (first, slices), (second, others) in combinations(splits.items(), 2):
        sentences += _shared_cases(first, slices, second, others)
        sentences += _shared_slices(first, slices, second, others)
    return sentences


def _shared_cases(
    first: str, slices: Sequence[SliceContent], second: str, others: Sequence[SliceContent]
) -> Iterator[str]:
    shared = {item.case for item in slices} & {item.case for item in others}
    if shared:
        names = _some(sorted(shared, key=natural_key), shown=20)
        yield f"DATASET: {first} and {second} share {len(shared)} cases: {names}"


def _shared_slices(
    first: str, slices: Sequence[SliceContent], second: str, others: Sequence[SliceContent]
) -> Iterator[str]:
    by_digest = {item.digest: item for item in slices if item.digest is not None}
    copies: dict[tuple[str, str], list[str]] = {}
    for other in others:
        twin = by_digest.get(other.digest) if other.digest else None
        if twin and twin.case != other.case:
            copies.setdefault((twin.case, other.case), []).append(
                f"{twin.file.name} = {other.file.name}"
            )
    for (case, other_case), names in copies.items():
        yield (
            f"DATASET: case {case} in {first} and case {other_case} in {second} have "
            f"{len(names)} identical slices: {_some(names, shown=3)}"
        )


def _some(names: Sequence[str], shown: int) -> str:
    return ", ".join([*names[:shown], *(["…"] if len(names) > shown else [])])

"""Which slices make up the batches of an epoch: the same for every generator."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np


@dataclass(frozen=True)
class EpochOrder:
    """A pure function of `seed` and the epoch, so that a resumed run goes on as it would have.

    Attributes:
        count: slices there are.
        batch_size: slices per step over all replicas.
        steps_per_epoch: batches per epoch; None = as many as the slices fill. When it asks for more
            than there are, a further shuffled round of all slices follows.
        full_batches: leave out the slices that do not fill a batch (they differ from epoch to
            epoch); otherwise the last batch may be smaller.
        shuffle: whether the order changes from epoch to epoch.
        seed: of the order.
        empty: indices of the slices without foreground.
        empty_share: of these, what every epoch (every round) takes, others each time; all the
            other slices are always taken.
    """

    count: int
    batch_size: int
    steps_per_epoch: int | None = None
    full_batches: bool = False
    shuffle: bool = False
    seed: int = 0
    empty: Sequence[int] = ()
    empty_share: float = 1.0

    @property
    def empty_taken(self) -> int:
        """Slices without foreground in an epoch."""
        return round(self.empty_share * len(self.empty))

    @property
    def available(self) -> int:
        """Slices that an epoch chooses from: those with foreground, and a share of the others."""
        return self.count - len(self.empty) + self.empty_taken

    @property
    def steps(self) -> int:
        """Batches per epoch, the same in all."""
        batches = self.available / self.batch_size
        whole = math.floor(batches) if self.full_batches else math.ceil(batches)
        return self.steps_per_epoch or whole

    def positions(self, epoch: int) -> np.ndarray:
        """Indices of the slices of `epoch`, batch after batch."""
        is_free = self.steps_per_epoch is None and not self.full_batches
        wanted = self.available if is_free else self.steps * self.batch_size
        rounds = math.ceil(wanted / self.available)
        return np.concatenate([self._round(epoch, number) for number in range(rounds)])[:wanted]

    def _round(self, epoch: int, number: int) -> np.ndarray:
        """Indices of all the slices that are available, in an order of their own."""
        rng = np.random.default_rng([self.seed, epoch, number])
        left_out = len(self.empty) - self.empty_taken
        indices = np.arange(self.count)
        if left_out:
            indices = np.delete(indices, rng.choice(self.empty, left_out, replace=False))
        return rng.permutation(indices) if self.shuffle else indices

    def shares(self, mine: range, replicas: int, first_epoch: int = 0) -> Iterator[np.ndarray]:
        """Indices of one batch per replica in turn, step after step and epoch after epoch, endless.

        Every step's slices are cut into equal parts for `replicas` replicas, of which those in
        `mine` are given. Where the last batch of an epoch is not full, -1 fills it.
        """
        for epoch in count(first_epoch):
            positions = self.positions(epoch)
            full = np.full(self.steps * self.batch_size, -1)
            full[: len(positions)] = positions
            yield from full.reshape(self.steps, replicas, -1)[:, mine].reshape(
                self.steps * len(mine), -1
            )

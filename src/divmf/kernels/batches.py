"""What steps on sampled pairs are made with, by name; compiled code takes named tuples as they are."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from divmf.engine.arrays import Array


class Batch(NamedTuple):
    """Pairs of one step: users (n,), items met (n,), items not met (n, each)."""

    users: Array
    met: Array
    unmet: Array


class Chunk(NamedTuple):
    """Some batches of pairs, one behind the other.

    users, met   (n,)
    unmet        items not met, (n, each)
    bounds       where the batches begin, and where the last one ends; with several processes, one may be empty
    """

    users: Array
    met: Array
    unmet: Array
    bounds: Array

    def batches(self) -> Iterator[Batch]:
        """The pairs of each batch."""
        for first, last in pairwise(self.bounds):
            yield Batch(self.users[first:last], self.met[first:last], self.unmet[first:last])


class Tables(NamedTuple):
    """Vectors of users and items, each (n, dim), and the bias of the items, which stays as it is."""

    users: Array
    items: Array
    bias: Array


class Gradients(NamedTuple):
    """Gradients of users and items, each (n, dim)."""

    users: Array
    items: Array


class Moments(NamedTuple):
    """Adam's mean and square of the gradients, each (n, dim)."""

    users_mean: Array
    users_square: Array
    items_mean: Array
    items_square: Array


class Rates(NamedTuple):
    """Adam's learning rate, and λ of the L2 that is added to the gradient."""

    rate: float
    l2: float

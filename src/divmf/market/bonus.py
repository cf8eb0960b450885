"""What showing an item is worth: the more, the less it is shown.

The (x + 1)-th showing of an item earns ρ·b(x), b(x) = log(1 + (c/(x + δ))^q)/q. Below c that is the entropy of the
exposure as Boltzmann counted it, −Σ log f_i!; beyond c it ends, the more sharply the larger q.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from divmf.engine.arrays import Array


@dataclass(frozen=True, eq=False)
class Bonus:
    """The bonus of every item, in units of ρ.

    delta      δ: the smaller, the more the first showing is worth
    level      c: the exposure at which the bonus ends
    steepness  q: how sharply
    most       how often an item can be shown: as often as there are users
    """

    delta: float
    level: float
    steepness: float
    most: int

    @cached_property
    def table(self) -> Array:
        """b(x), what one more showing of an item shown x times is worth: it falls.  (most + 2,)"""
        shown = np.arange(self.most + 2)
        # log(1 + y^q) by way of log y, for y^q may be too large to write
        return np.asarray(np.logaddexp(0, self.steepness * np.log(self.level / (shown + self.delta))) / self.steepness)

    @cached_property
    def sums(self) -> Array:
        """B(f) = Σ_{x<f} b(x).  (most + 3,)"""
        return np.concatenate([[0.0], np.cumsum(self.table)])

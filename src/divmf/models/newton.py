"""Newton's method with halved steps, for the vector of one row."""

from collections.abc import Callable

from divmf.engine.arrays import Array

NEWTON, HALVINGS = 25, 12  # steps at the most, and halvings of one
TOLERANCE = 1e-4  # of the gradient beside its parts: where Newton's method ends


def minimum(start: Array, loss: Callable[[Array], float], step_from: Callable[[Array], Array | None]) -> Array:
    """Where a convex loss is least; step_from: Newton's step from a vector, none where its gradient is small enough."""
    vector, now = start, loss(start)
    for _ in range(NEWTON):
        step = step_from(vector)
        if step is None:
            break
        for _ in range(HALVINGS):
            if (new := loss(vector + step)) <= now:
                break
            step = step / 2
        else:
            break
        vector, now = vector + step, new
    return vector

"""Scorers come back from disk as they were."""

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from divmf.models.scorer import Blocks, Factors, ItemItem, Scorer
from divmf.models.stored import from_tensors, tensors
from divmf.models.weights import read_tensors, write_tensors

RNG = np.random.default_rng(0)
MET = sparse.csr_array((RNG.random((7, 5)) < 0.4).astype(np.float32))
WEIGHTS = RNG.normal(size=(5, 5)).astype(np.float32)
SCORERS = {
    "factors": Factors.from_arrays(RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3)), RNG.normal(size=5)),
    "dense": ItemItem(MET, WEIGHTS),
    "sparse": ItemItem(MET, sparse.csr_array(WEIGHTS * (np.abs(WEIGHTS) > 0.5))),
}


@pytest.mark.parametrize("scorer", SCORERS.values(), ids=list(SCORERS))
def test_a_scorer_read_back_scores_the_same(scorer: Scorer, tmp_path: Path) -> None:
    write_tensors(tmp_path / "scorer.safetensors", tensors(scorer))
    again = from_tensors(read_tensors(tmp_path / "scorer.safetensors"))
    assert type(again) is type(scorer)
    users = np.arange(7)
    np.testing.assert_array_equal(again.scores(users), scorer.scores(users))


def test_what_users_met_may_be_kept_elsewhere() -> None:
    kept = tensors(SCORERS["dense"], met=False)
    assert list(kept) == ["weights"]
    np.testing.assert_array_equal(from_tensors(kept, MET).scores(np.arange(7)), SCORERS["dense"].scores(np.arange(7)))
    with pytest.raises(ValueError, match="what users met was not kept"):
        from_tensors(kept)


def test_what_is_no_scorer_is_named() -> None:
    with pytest.raises(ValueError, match="a Blocks holds no numbers"):
        tensors(Blocks(lambda users: np.zeros((len(users), 5)), 7, 5))
    with pytest.raises(ValueError, match="tensors bias are no scorer"):
        from_tensors({"bias": tensors(SCORERS["factors"])["bias"]})


@pytest.mark.parametrize("of", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("name", "place", "value", "match"),
    [
        ("met.indices", 0, 5, "met: .*5"),
        ("met.indices", 0, -1, "met: .*>= 0"),
        ("met.offsets", 1, 1 << 40, "met: its offsets fall"),
        ("met.offsets", -1, 0, "met: its offsets fall"),
        ("met.offsets", 0, -1, "met: .*start"),
        ("met.offsets", -1, 1 << 40, "met: .*size"),
    ],
)
def test_places_out_of_bounds_are_refused_before_a_kernel_reads_there(
    of: str, name: str, place: int, value: int, match: str
) -> None:
    """Fault 3: the file chooses where memory is read."""
    found = {key: tensor.clone() for key, tensor in tensors(SCORERS[of]).items()}
    found[name][place] = value
    with pytest.raises(ValueError, match=match):
        from_tensors(found)


def test_weights_that_are_no_square_of_float32_are_refused() -> None:
    found = tensors(SCORERS["dense"])
    for unfit in (found["weights"][:4], found["weights"][0], found["weights"].double()):
        with pytest.raises(ValueError, match="weights has shape"):
            from_tensors(found | {"weights": unfit})

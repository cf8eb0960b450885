"""The examples of the public names run and give what they say."""

import doctest

import numpy as np
import polars as pl
import pytest

import divmf

SHOWN = ("DivMF", "Interactions", "TopK", "diversify", "evaluate", "hold_out", "leave_one_out")


@pytest.mark.parametrize("name", divmf.__all__)
def test_a_public_name_says_what_it_is(name: str) -> None:
    text = getattr(divmf, name).__doc__
    assert text is not None
    assert len(text.split()) >= 5


@pytest.mark.parametrize("name", SHOWN)
def test_the_example_of_a_public_name_runs(name: str) -> None:
    found = doctest.DocTestFinder(recurse=False).find(
        getattr(divmf, name), name, module=False, globs={"divmf": divmf, "np": np, "pl": pl}
    )
    (example,) = found
    assert example.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0

"""Tables on disk: what safetensors itself reads, a process' rows at their place, and nothing half-written."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.testing import assert_close

from divmf.engine.threads import RowRange
from divmf.models.weights import is_users, layout, metadata_of, read_tensors, write_at, write_tensors


def some_tensors(n_users: int = 7) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(n_users)
    return {
        "users": torch.randn(n_users, 3, generator=generator),
        "items": torch.randn(5, 3, generator=generator),
        "bias": torch.randn(5, generator=generator, dtype=torch.float64),
        "accuracy.users.exp_avg": torch.randn(n_users, 3, generator=generator),
        "accuracy.users.step": torch.tensor(12.0),
    }


def test_safetensors_itself_reads_what_was_written(tmp_path: Path) -> None:
    tensors = some_tensors()
    write_tensors(tmp_path / "state.safetensors", tensors, {"epochs": "3"})
    found = load_file(tmp_path / "state.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert_close(found[name], tensor, rtol=0, atol=0)
    assert metadata_of(tmp_path / "state.safetensors")["epochs"] == "3"
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


@given(st.integers(0, 7), st.integers(0, 7))
def test_where_things_stand_in_a_file_does_not_depend_on_the_share(first: int, second: int) -> None:
    tensors = some_tensors()
    expected = layout(tensors, 7, {})
    cuts = [0, *sorted((first, second)), 7]
    for low, high in pairwise(cuts):
        share = {name: t[low:high] if is_users(name, t.shape) else t for name, t in tensors.items()}
        assert layout(share, 7, {}) == expected


def test_a_process_reads_its_rows_of_the_users_and_all_of_the_rest(tmp_path: Path) -> None:
    tensors = some_tensors()
    write_tensors(tmp_path / "w", tensors)
    found = read_tensors(tmp_path / "w", RowRange(2, 5, 7))
    for name, tensor in tensors.items():
        expected = tensor[2:5] if name in ("users", "accuracy.users.exp_avg") else tensor
        assert torch.equal(found[name], expected)


def test_rows_written_at_their_place_make_the_file_of_one_process(tmp_path: Path) -> None:
    tensors = some_tensors()
    write_tensors(tmp_path / "one", tensors)
    head, places, size = layout(tensors, 7, {})
    with (tmp_path / "two").open("wb") as file:
        file.write(head)
        file.truncate(size)
        for low, high in ((4, 7), (0, 4)):  # in any order
            for name, tensor in tensors.items():
                if is_users(name, tensor.shape):
                    write_at(file, places[name] + 4 * 3 * low, tensor[low:high])
                else:
                    write_at(file, places[name], tensor)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_of_other_users_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "w", some_tensors())
    with pytest.raises(ValueError, match=r"damaged \(it has 7 users, the data 9\)"):
        read_tensors(tmp_path / "w", RowRange(0, 9, 9))


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_tensors(tmp_path / "w", some_tensors())
    before = (tmp_path / "w").read_bytes()
    with pytest.raises(KeyError):
        write_tensors(tmp_path / "w", {"users": torch.zeros(2, 2, dtype=torch.complex64)})
    assert (tmp_path / "w").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["w"]

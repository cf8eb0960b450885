import polars as pl
import pytest
from polars.testing import assert_frame_equal

from divmf.parts import check_folder, is_folder, write_part
from divmf.tables import read_table

TABLE = pl.DataFrame({"user_id": [1, 1, 2, 3, 3, 3], "item_id": list("abcabc")})


def written_by(processes, size, folder):
    threads = processes(size)
    bounds = [len(TABLE) * edge // size for edge in range(size + 1)]
    threads.run(lambda: write_part(TABLE[bounds[threads.rank()] : bounds[threads.rank() + 1]], folder))
    return sorted(path.name for path in folder.iterdir())


def test_parts_of_any_number_of_processes_are_one_table(tmp_path, processes):
    folder = tmp_path / "lists"
    for size in (3, 1, 2):  # the parts before are gone
        names = [f"part-{rank:05d}-of-{size:05d}.parquet" for rank in range(size)]
        assert written_by(processes, size, folder) == names
        assert_frame_equal(pl.read_parquet(folder), TABLE)
        assert_frame_equal(read_table(folder), TABLE)
        assert pl.from_pandas(__import__("pandas").read_parquet(folder)).rows() == TABLE.rows()
        check_folder(folder)


def test_what_an_interrupted_call_left_is_taken_away(tmp_path, processes):
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / ".part-00004-of-00007.parquet.tmp").write_text("half")
    check_folder(folder)
    assert written_by(processes, 1, folder) == ["part-00000-of-00001.parquet"]


def test_a_name_without_an_ending_is_a_folder(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    assert [is_folder(tmp_path / name) for name in ("new", "a.parquet", "lists.parquet")] == [True, True, False]


def test_folders_that_hold_something_else_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds notes\.txt, which is not a part of lists; choose another folder"):
        check_folder(tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        check_folder(tmp_path / "no" / "lists")
    with pytest.raises(ValueError, match="is a file; name a folder"):
        check_folder(tmp_path / "notes.txt")

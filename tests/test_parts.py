import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from divmf.cli.inputs import read_users
from divmf.data.datasets import marketplace
from divmf.data.fingerprint import fingerprint
from divmf.data.parts import check_folder, is_folder, write_part
from divmf.data.tables import read_table

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
        assert pl.from_pandas(pd.read_parquet(folder)).rows() == TABLE.rows()
        check_folder(folder)


def test_what_an_interrupted_call_left_is_taken_away(tmp_path, processes):
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / ".part-00004-of-00007.parquet.tmp").write_text("half")
    (folder / ".part-00000-of-00001.parquet.999999999-0123abcd.tmp").write_text("half")  # no such process
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


@pytest.mark.slow
def test_processes_read_ranges_of_a_log_and_write_parts_of_the_lists(tmp_path, divmf):
    log, run = tmp_path / "log", tmp_path / "run"
    data = marketplace(300, 80, 5000, seed=3)
    log.mkdir()
    for part, rows in enumerate(data.frame.sample(fraction=1, shuffle=True, seed=0).iter_slices(1700)):
        rows.write_parquet(log / f"{part}.parquet")
    line = ("train", log, "-o", run, "--k-core", 6, "--l2", 8, "--accuracy-epochs", 2, "--diversity-epochs", 1)
    assert divmf(*line).code == 0
    assert divmf("recommend", run, "-o", tmp_path / "alone", "-k", 5).code == 0
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).with_name("distributed_lists.py")
    done = subprocess.run([*start, script, log, run, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    split, shares = data.k_core(6).leave_one_out(0), [json.loads((tmp_path / f"{n}.json").read_text()) for n in (0, 1)]
    assert sum(share["users"] for share in shares) == split.n_users
    assert sum(share["pairs"] for share in shares) == len(split.train)
    assert all(share["users"] > split.n_users // 3 and share["items"] == split.n_items for share in shares)
    assert {share["hash"] for share in shares} == {fingerprint(split)}
    assert sorted(path.name for path in (tmp_path / "lists").iterdir()) == [
        "part-00000-of-00002.parquet", "part-00001-of-00002.parquet",
    ]  # fmt: skip
    assert_frame_equal(pl.read_parquet(tmp_path / "lists"), pl.read_parquet(tmp_path / "alone"))


def test_several_processes_do_not_write_one_file(tmp_path, divmf, monkeypatch):
    monkeypatch.setattr("divmf.engine.comm.size", lambda: 2)
    monkeypatch.setattr("divmf.engine.comm.rank", lambda: 0)
    done = divmf("recommend", tmp_path, "-o", tmp_path / "lists.parquet")
    assert (done.code, done.out) == (2, "")
    assert "is one file, and there are 2 processes; name a folder, as lists/" in done.err


def test_a_file_of_users_is_shared_out_and_a_stranger_is_named(processes, tmp_path):
    split, path = marketplace(40, 30, 300, 0).leave_one_out(0), tmp_path / "users.csv"
    asked = ["u00031", "u00002", "u00007", "u00000"]
    pl.DataFrame({"user_id": asked}).write_csv(path)
    threads = processes(2)
    found = threads.run(lambda: read_users(path, split.of_process(threads.rank(), 2).train).to_list())
    assert found == [["u00002", "u00007", "u00000"], ["u00031"]]
    pl.DataFrame({"user_id": [*asked, "zoe"]}).write_csv(path)
    threads = processes(2)
    with pytest.raises(ValueError, match=r"1 of the 5 users were not in the training data \(such as 'zoe'\)"):
        threads.run(lambda: read_users(path, split.of_process(threads.rank(), 2).train))

"""A copy of a process that computes says what is wrong with it, where it would wait for ever."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

AFTER_FORK = """
import os, signal, sys
import divmf
import multiprocessing
def work(model):
    signal.alarm(60)  # a child that waits for ever is ended
    for call in (lambda: model.recommend(["u00001"]), lambda: model.lists(), lambda: divmf.load(sys.argv[1])):
        try:
            call()
        except RuntimeError as error:
            print(error)
if sys.argv[2] == "used":
    model = divmf.load(sys.argv[1])
    model.lists()
    child = multiprocessing.get_context("fork").Process(target=work, args=(model,))
    child.start()
    child.join()
    sys.exit(child.exitcode)
child = os.fork()
if child == 0:
    signal.alarm(60)
    divmf.load(sys.argv[1]).recommend(["u00001"])
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(("parent", "code", "refused"), [("used", 0, 2), ("only imported", 7, 0)])
def test_after_a_fork_work_is_refused_if_the_parent_had_begun_any(
    finished_run: Path, parent: str, code: int, refused: int
) -> None:
    # `recommend` hung for ever in the workers of some servers; lists of everybody are there already, and are given
    done = subprocess.run(
        [sys.executable, "-c", AFTER_FORK, str(finished_run), parent], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.count("this process was forked from one that had used divmf") == refused
    assert done.stdout.count("'spawn' or 'forkserver', or load the model after the fork") == refused

"""What each process of `test_parts` does: reads a log by ranges of users, and writes its part of the lists of a run."""

import json
import sys
from pathlib import Path

from divmf.data import scans
from divmf.data.fingerprint import fingerprint
from divmf.data.interactions import Interactions
from divmf.data.parts import write_part
from divmf.engine import comm
from divmf.estimator import load


def main(log: str, run: str, folder: Path) -> None:
    scans.SMALL = 1  # no log is too small to be shared
    with comm.process_group():
        split = Interactions.read_share(log).k_core(6).leave_one_out(0)
        found = {"users": split.n_users, "items": split.n_items, "pairs": len(split.train), "hash": fingerprint(split)}
        (folder / f"{comm.rank()}.json").write_text(json.dumps(found))
        write_part(load(run).recommend_frame(), folder / "lists")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

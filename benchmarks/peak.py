"""`python -m benchmarks.peak FOLDER ARGUMENT …`: divmf with these arguments; each process leaves its peak in FOLDER."""

import os
import sys
from pathlib import Path

from benchmarks.rerankers import peak_gigabytes


def main() -> None:
    """Run, and write the peak down, also if the run fails."""
    from divmf.cli import main as divmf

    folder, sys.argv[:] = Path(sys.argv[1]), ["divmf", *sys.argv[2:]]
    try:
        divmf()
    finally:
        (folder / f"{sys.argv[1]}-{os.environ.get('RANK', '0')}.peak").write_text(str(peak_gigabytes()))


if __name__ == "__main__":
    main()

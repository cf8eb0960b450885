"""Cases led by what they reach in the code, by atheris: python tests/fuzz/guided.py log.csv --seconds 60 --seed 1

Needs `pip install 'divmf[fuzz]'` (Linux). The reader begins from its valid examples; a fault ends it with the file.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    try:
        import atheris
    except ImportError:
        print("atheris is not installed here: pip install 'divmf[fuzz]'; no case was led by coverage")
        return
    with atheris.instrument_imports(include=["divmf.data", "divmf.train.schema", "divmf.models.weights"]):
        from targets import all_targets

        from fuzz import silent
    folder = Path(tempfile.mkdtemp())
    (target,) = all_targets(folder / "fuzz", [asked.reader])
    (folder / "corpus").mkdir()
    for number, example in enumerate(target.examples):
        (folder / "corpus" / str(number)).write_bytes(example)

    def one(data: bytes) -> None:
        with silent():
            target.attempt(data)

    limits = [f"-max_total_time={asked.seconds}", f"-seed={asked.seed}", "-max_len=8192", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={Path.cwd()}/fault-", str(folder / "corpus")], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""Every command that writes, killed, stopped, out of room or called twice at once: it ends clean, and the next goes on.

python tests/faults/faults.py --seed 0          (`make faults`)
python tests/faults/faults.py --share 0.1 --only train recommend

Moments are drawn from the seed between the start of a command and the time that it takes undisturbed; what is left in
the end must be what the undisturbed command leaves, byte for byte but for the seconds that it took.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fetches
import polars as pl

SHORT = ["--accuracy-epochs", "4", "--diversity-epochs", "6", "-q"]
DATA = "synthetic:60x40x900"
# what is called, and what it leaves; RUN is a finished run, WIDE are lists of 20, RECIPE is a short one of the paper's
# experiments, OUT is what it writes
COMMANDS: dict[str, list[str]] = {
    "train": ["train", DATA, "-o", "OUT", *SHORT],
    "train paper": ["train", DATA, "-o", "OUT", "--preset", "paper", *SHORT],
    **{
        f"train {model}": ["train", DATA, "-o", "OUT", "--model", model, "--diversity-epochs", "6", "-q"]
        for model in ("auto", "ease", "ials")
    },
    **{f"train {model}": ["train", DATA, "-o", "OUT", "--model", model, *SHORT] for model in ("bpr", "mse")},
    "reproduce": ["reproduce", "q2", "--dataset", DATA, "-o", "OUT", "--seeds", "2", "--recipe", "RECIPE", "-q"],
    "recommend": ["recommend", "RUN", "-o", "OUT.parquet", "-q"],
    "recommend parts": ["recommend", "RUN", "-o", "OUT", "-q"],
    "rerank": ["rerank", "WIDE", "--method", "bayes_rule", "-o", "OUT.csv", "-q"],
    "curve": ["curve", "RUN", "-o", "OUT.csv", "-q"],
    "split": ["data", "split", DATA, "-o", "OUT", "-q"],
}
KILLS = {name: 50 for name in COMMANDS if name.startswith("train")}  # of the others, 20 each
RECIPE = """title = "short"
core = 0
[settings]
accuracy_epochs = 3
diversity_epochs = 3
dim = 8
[blocks]
[alternating]
"""
CLEAN = (0, 1, 2, 130, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT)
LIMIT = 300  # seconds after which a command hangs


@dataclass
class Place:
    """A folder to work in, with a finished run in it."""

    folder: Path
    failures: list[str] = field(default_factory=list)
    checked: int = 0
    known: dict[str, tuple[dict[str, Any], float]] = field(default_factory=dict)

    @property
    def counts(self) -> tuple[int, int]:
        """Checks so far, and those that failed."""
        return self.checked, len(self.failures)

    def words(self, name: str, out: Path) -> list[str]:
        """A command as words of a shell."""
        places = {"RUN": str(self.folder / "run"), "WIDE": str(self.folder / "wide.parquet")}
        places["RECIPE"] = str(self.folder / "recipe.toml")
        words = [places.get(word, word) for word in COMMANDS[name]]
        return [sys.executable, "-m", "divmf", *(word.replace("OUT", str(out)) for word in words)]

    def start(self, name: str, out: Path) -> subprocess.Popen[str]:
        """Begin a command."""
        one_thread = os.environ | {"DIVMF_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            self.words(name, out), env=one_thread, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def finish(self, name: str, out: Path) -> tuple[int, str]:
        """Run a command to its end: exit code, stderr."""
        return ended(self.start(name, out))

    def expect(self, holds: bool, what: str) -> None:
        """Count a check, and remember it if it fails."""
        self.checked += 1
        if not holds:
            self.failures.append(what)
            print(f"FAILED {what}", flush=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process: exit code, stderr."""
    try:
        _, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        return 9999, f"still there after {LIMIT} s: {process.communicate()[1]}"
    return process.returncode, errors


def prepared(folder: Path) -> Place:
    """A finished run, and wide lists of it."""
    place = Place(folder)
    (folder / "recipe.toml").write_text(RECIPE)
    for words in (
        ["train", DATA, "-o", str(folder / "run"), *SHORT],
        ["recommend", str(folder / "run"), "-o", str(folder / "wide.parquet"), "--k", "20", "-q"],
    ):
        subprocess.run([sys.executable, "-m", "divmf", *words], check=True)
    return place


def timeless(value: Any) -> Any:
    """A document without the seconds that something took."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key != "seconds"}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def content(path: Path) -> Any:
    """What a file holds, without seconds."""
    if path.suffix == ".json":
        return timeless(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        return [timeless(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        return pl.read_parquet(path, glob=False).select(pl.exclude("seconds")).to_dicts()
    if path.suffix == ".csv":
        return pl.read_csv(path).select(pl.exclude("seconds")).to_dicts()
    if path.suffix in (".html", ".md"):  # the command that made a page stands in it
        return path.read_text().replace(str(path.parent), "")
    return path.read_bytes()


def left(out: Path) -> dict[str, Any]:
    """All that stands under an output's name, hidden files too."""
    found = [path for path in out.parent.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(out.parent)): content(path) for path in sorted(found)}


def undisturbed(place: Place, name: str) -> tuple[dict[str, Any], float]:
    """What a command leaves, and the seconds that it takes."""
    out = fresh(place, "undisturbed")
    began = time.perf_counter()
    code, errors = place.finish(name, out)
    place.expect(code == 0, f"{name}: exit {code}: {errors}")
    return left(out), time.perf_counter() - began


def fresh(place: Place, name: str) -> Path:
    """Where an output goes: in an empty folder of its own."""
    folder = place.folder / "outputs" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder / "out"


def interrupted(place: Place, name: str, number: int, rng: random.Random, how: signal.Signals) -> None:
    """End a command by a signal one to three times at drawn moments, then let it finish: nothing is different."""
    expected, seconds = undisturbed_once(place, name)
    out = fresh(place, f"{name}-{number}".replace(" ", "-"))
    for _ in range(rng.randint(1, 3)):
        process = place.start(name, out)
        time.sleep(rng.uniform(0, seconds))
        process.send_signal(how)
        code, errors = ended(process)
        place.expect(code in CLEAN and "Traceback" not in errors, f"{name}, {how.name} {number}: exit {code}: {errors}")
    code, errors = place.finish(name, out)
    place.expect(code == 0, f"{name}, after {how.name} {number}: exit {code}: {errors}")
    place.expect(left(out) == expected, f"{name}, after {how.name} {number}: {differs(left(out), expected)}")


def undisturbed_once(place: Place, name: str) -> tuple[dict[str, Any], float]:
    """As `undisturbed`, once for each command."""
    if name not in place.known:
        place.known[name] = undisturbed(place, name)
    return place.known[name]


def differs(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Which files are not what they should be."""
    names = sorted(found.keys() | expected.keys())
    return ", ".join(name for name in names if found.get(name) != expected.get(name)) or "nothing"


def two_at_once(place: Place, name: str) -> None:
    """Two calls with one output: each ends well or says why not, and what is left is what one leaves."""
    expected, _ = undisturbed_once(place, name)
    out = fresh(place, f"{name}-twice".replace(" ", "-"))
    codes = [ended(each) for each in (place.start(name, out), place.start(name, out))]
    place.expect(any(code == 0 for code, _ in codes), f"{name}, two at once: {codes}")
    place.expect(all(code in (0, 2) and "Traceback" not in errors for code, errors in codes), f"{name}, two: {codes}")
    place.expect(left(out) == expected, f"{name}, two at once: {differs(left(out), expected)}")


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of so many bytes; it needs the right to mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode()):
        raise PermissionError("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        libc.umount2(os.fsencode(folder), 2)


def full_disk(place: Place, name: str, size: int) -> None:
    """A disk that is too small: one line that names the file, and with room the same call goes on."""
    expected, _ = undisturbed_once(place, name)
    folder = place.folder / "disk"
    with small_disk(folder, size) as disk:
        out = disk / "out"
        code, errors = place.finish(name, out)
        place.expect(code in (0, 1, 2), f"{name} on {size} bytes: exit {code}: {errors}")
        if code:
            told = errors.strip().splitlines()
            place.expect(len(told) == 1 and str(disk) in errors, f"{name} on {size} bytes said: {errors}")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mount(b"tmpfs", os.fsencode(disk), b"tmpfs", 32, b"size=64m")  # MS_REMOUNT
        code, errors = place.finish(name, out)
        place.expect(code == 0, f"{name} after {size} bytes: exit {code}: {errors}")
        place.expect(left(out) == expected, f"{name} after {size} bytes: {differs(left(out), expected)}")


def torn(place: Place, number: int, rng: random.Random) -> None:
    """A file of a run cut at a drawn place: what reads it says which, or nothing of it was needed."""
    run = fresh(place, "torn")
    shutil.copytree(place.folder / "run", run)
    path = rng.choice([each for each in sorted(run.rglob("*")) if each.is_file() and each.stat().st_size])
    with path.open("r+b") as file:
        file.truncate(rng.randrange(path.stat().st_size))
    for words in (["recommend", str(run), "-o", str(run.parent / "lists.csv")], ["curve", str(run)]):
        done = subprocess.run(
            [sys.executable, "-m", "divmf", *words, "-q"], capture_output=True, text=True, check=False
        )
        wrong = done.returncode not in (0, 2) or "unexpected" in done.stderr or "Traceback" in done.stderr
        place.expect(not wrong, f"torn {path.name} {number}: exit {done.returncode}: {done.stderr}")


def whole_trial(place: Place, seed: int, share: float, only: Sequence[str]) -> None:
    """All faults, in the order of the commands; share: of the number of kills."""
    rng = random.Random(seed)
    for name in [name for name in COMMANDS if not only or name in only]:
        before, kills = place.counts, max(1, round(share * KILLS.get(name, 20)))
        for number in range(kills):
            interrupted(place, name, number, rng, signal.SIGKILL)
        for how in (signal.SIGTERM, signal.SIGINT):
            interrupted(place, name, kills, rng, how)
        two_at_once(place, name)
        try:
            for size in (4096, 20_000, 60_000):
                full_disk(place, name, size)
        except PermissionError as error:
            print(f"{name}: {error}")
        report(place, f"{name}: {kills} kills, SIGTERM, Ctrl-C, two at once, three full disks", before)
    rest: dict[str, Callable[[Place, int, random.Random], None]] = {"data fetch": fetches.broken, "torn files": torn}
    for name, fault in rest.items():
        if not only or name in only:
            before, times = place.counts, max(1, round(share * 20))
            for number in range(times):
                fault(place, number, rng)
            report(place, f"{name}: {times} times", before)


def report(place: Place, what: str, before: tuple[int, int]) -> None:
    """What came of a part of the trial."""
    checked, failed = place.counts
    print(f"{what}: {checked - before[0]} checks, {failed - before[1]} failed", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the number of kills")
    parser.add_argument("--only", nargs="*", default=[], help="these commands")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = prepared(Path(folder))
        whole_trial(place, arguments.seed, arguments.share, arguments.only)
    print(f"seed {arguments.seed}: {place.checked} checks, {len(place.failures)} failed")
    return 1 if place.failures else 0


if __name__ == "__main__":
    sys.exit(main())

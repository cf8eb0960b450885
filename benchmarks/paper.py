"""The paper's experiments on four datasets, each by `divmf reproduce all`: which claims hold, and by how much.

`python -m benchmarks.paper [--folder results/reproduce] [--page]` makes what is not there yet, which takes hours, and
writes the last section of docs/results.md of the datasets that are whole; `--page` writes it of what is there.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from divmf.engine.files import read_json
from divmf.reports.experiments.claims import Claim
from divmf.reports.experiments.recipe import QUESTIONS
from divmf.reports.experiments.reproduce import read_answers
from divmf.reports.reproduce import SIGNS

# what is drawn of a dataset: the file, and what it shows
FIGURES = {
    "q1-paper": "Figure 3: DivMF and the paper's four baselines on the same model",
    "q2": "Figure 4: without either regularizer, at 5% nDCG loss",
    "q3": "Figure 5: accuracy first, then diversity, against epochs in turn",
    "q4": "Figure 6: which items are unmasked",
    "q5": "Figure 7: mini-batches against the whole matrix",
}
DATASETS = ("ml-1m", "epinions", "gowalla-lightgcn-10core", "yelp-nfa")
ROOT = Path(__file__).parent.parent
HEADING = "## The paper's claims, tried again"


def main() -> None:
    """Make the experiments, then their section of the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "reproduce", help="where they are kept")
    parser.add_argument("--page", action="store_true", help="write the section of the datasets that are there")
    asked = parser.parse_args()
    if not asked.page:
        reproduce(asked.folder)
    file = ROOT / "docs" / "results.md"
    above = file.read_text().partition(HEADING)[0]
    file.write_text(f"{above}{section(asked.folder, file.parent / 'img')}\n")
    print(file)


def reproduce(folder: Path) -> None:
    """Run all questions on all datasets; what was trained before is not trained again."""
    for name in DATASETS:
        command = ["reproduce", "all", "--dataset", name, "-o", str(folder / name)]
        subprocess.run([sys.executable, "-m", "divmf", *command], check=True, stdout=subprocess.DEVNULL)


def section(folder: Path, images: Path) -> str:
    """All of it as Markdown, of the datasets that are whole; figures are copied beside those of the page."""
    answers = {name: read_answers(folder / name) for name in DATASETS}
    claims = {name: [claim for answer in made for claim in answer.claims]
              for name, made in answers.items() if len(made) == len(QUESTIONS)}  # fmt: skip
    titles = {name: read_json(folder / name / "reproduce.json")["title"] for name in claims}
    parts = [INTRODUCTION, "\n".join(standing(titles, claims))]
    for name, title in titles.items():
        about = read_json(folder / name / "reproduce.json")
        parts.append(f"### The paper's questions on {title}")
        parts.append(
            f"{about['users']:,} users, {about['items']:,} items, {about['interactions']:,} interactions:"
            f" `divmf reproduce all --dataset {name} -o {name}`"
        )
        parts += list(drawn(folder / name / "figures", images, name))
        parts.append("\n".join(["| | claim | here | by how much |", "|---|---|---|---|", *map(detail, claims[name])]))
    return "\n\n".join(parts)


def standing(titles: Mapping[str, str], claims: Mapping[str, Sequence[Claim]]) -> Iterator[str]:
    """Every claim, a column a dataset."""
    yield f"| | claim | the paper | {' | '.join(titles.values())} |"
    yield "|---" * (3 + len(titles)) + "|"
    for each in zip(*claims.values(), strict=True):
        verdicts = " | ".join(f"{SIGNS[claim.verdict]} {claim.verdict}" for claim in each)
        yield f"| {each[0].question.upper()} | {each[0].claim} | {each[0].paper or 'not asked'} | {verdicts} |"


def drawn(figures: Path, images: Path, name: str) -> Iterator[str]:
    """The figures of a dataset."""
    for figure, caption in FIGURES.items():
        file = images / f"{name}-{figure}.svg"
        images.mkdir(exist_ok=True)
        shutil.copyfile(figures / f"{figure}.svg", file)
        yield f"![{caption}](img/{file.name})\n\n*{caption}.*"


def detail(claim: Claim) -> str:
    """A claim with its numbers as a row."""
    numbers = "<br>".join(
        " ".join(filter(None, [effect.metric, effect.where, f"against {effect.rival}:", effect.shown]))
        for effect in claim.effects
    )
    return f"| {claim.question.upper()} | {claim.name} | {SIGNS[claim.verdict]} {claim.verdict} | {numbers} |"


INTRODUCTION = f"""{HEADING}

`divmf reproduce all` with three seeds: the paper's settings, its five questions, under the honest protocol (settings
chosen on validation, numbers read on test, seen items out of the lists). A claim **held** where the whole 95% interval
over the seeds is on its side, **did not hold** where all of it is on the other, and is **not clear** between; of a
claim with several numbers, some may hold in part. Numbers are signed so that plus speaks for the claim (less Gini is a
plus). The Gowalla and Yelp data are stand-ins, not the paper's files. See [reproduce](reproduce.md)."""


if __name__ == "__main__":
    main()

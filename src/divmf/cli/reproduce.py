"""divmf reproduce."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.options import command

if TYPE_CHECKING:
    from divmf.data.interactions import Interactions
    from divmf.reports.experiments.recipe import Recipe
    from divmf.reports.experiments.reproduce import Answer


@command(app, "reproduce")
def reproduce(
    out: Out,
    questions: Annotated[list[str], typer.Argument(help="q1, q2, q3, q4, q5, several of them, or all.")],
    dataset: Annotated[
        str,
        typer.Option(help="A known name, such as ml-1m or epinions (its 15-core), or a file; see `divmf data list`."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the page, the figures, the numbers and the cache.")
    ],
    seeds: Annotated[int, typer.Option(min=2, help="Number of seeds, which the intervals are over.")] = 3,
    k_core: Annotated[
        int | None,
        typer.Option(
            min=0, help="Keep users and items with at least this many interactions, instead of the recipe's number."
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Settings for the dataset (TOML), instead of the built-in ones.")
    ] = None,
) -> None:
    """Run the paper's experiments: figures, tables, and whether its claims hold on this data.

    q1 DivMF beside four baselines and stronger methods · q2 its two regularizers · q3 sequential, alternating or
    joint training · q4 which items are unmasked · q5 mini-batches.

    Trained models are kept in the folder, under a hash of data and settings: questions share them, and a command
    that was stopped continues where it was. Example:

      divmf reproduce all --dataset ml-100k -o ml-100k
    """
    from divmf.data.datasets import open_data, resolve
    from divmf.reports.experiments.recipe import QUESTIONS, read_recipe
    from divmf.reports.experiments.reproduce import claim_folder, read_answers, write_answer

    names = list(QUESTIONS) if "all" in questions else [name for name in QUESTIONS if name in questions]
    if unknown := [name for name in questions if name not in (*QUESTIONS, "all")]:
        raise ValueError(f"there is no question {unknown[0]!r}; choose {', '.join(QUESTIONS)}, or all")
    chosen = read_recipe(dataset, recipe, k_core)
    raw = open_data(resolve(dataset)[0])
    data = raw.k_core(chosen.core) if chosen.core else raw
    about = claim_folder(output, dataset, chosen, data)
    out.note(f"{chosen.title}: {data.n_users:,} users, {data.n_items:,} items, {len(data):,} interactions")
    logging.getLogger("divmf.rerank").setLevel(logging.ERROR)  # what a sweep passes through is no news
    for answer in answers(out, output, data, chosen, names, seeds):
        write_answer(output, answer)
    told = read_answers(output)
    flags = "".join([f" --seeds {seeds}" if seeds != 3 else "", f" --k-core {k_core}" if k_core is not None else "",
                     f" --recipe {recipe}" if recipe else ""])  # fmt: skip
    line = f"divmf reproduce {' '.join(answer.name for answer in told)} --dataset {dataset} -o {output}{flags}"
    write_pages(output, told, raw, about, chosen.base(0).k, line)
    claims = [claim for answer in told for claim in answer.claims if answer.name in names]
    out.table(
        f"{chosen.title}: the claims, with {seeds} seeds",
        ["", "claim", "the paper", "here", "by how much"],
        [[each.question, each.name, each.paper or "not asked", each.verdict, each.by_how_much] for each in claims],
    )
    out.say(f"\npage: {(output / 'report.html').resolve()}")
    out.result({"output": str(output), "dataset": dataset, "seeds": seeds,
                "claims": [claim.to_json() for claim in claims]})  # fmt: skip


def answers(
    out: Out, output: Path, data: "Interactions", recipe: "Recipe", names: list[str], seeds: int
) -> "list[Answer]":
    """Train and rerank with a progress bar; stopped, what was done is kept."""
    from divmf.reports.experiments.reproduce import work

    working = work(output, data, recipe, names, seeds)
    try:
        with out.progress("reproducing", None) as bar:
            while True:
                step = next(working)
                bar.update(step.what, step.done, step.total, {
                    "epoch": step.point.epoch, "nDCG": step.point.valid["ndcg"], "Gini": step.point.valid["gini"],
                })  # fmt: skip
    except StopIteration as end:
        told: list[Answer] = end.value
        return told
    except KeyboardInterrupt:
        out.note(f"\nstopped; what was trained is kept in {output}. The same command goes on from there.")
        raise


def write_pages(
    output: Path, told: "list[Answer]", raw: "Interactions", about: dict[str, Any], k: int, line: str
) -> None:
    """report.html, results.md and the figures."""
    from divmf.engine.files import replacing
    from divmf.reports.chart_files import save_spec
    from divmf.reports.markdown import markdown_of
    from divmf.reports.page import made_by, write_page
    from divmf.reports.reproduce import Reproduction, sections

    page = Reproduction(told, raw, about, k)
    parts, figures = sections(page), output / "figures"
    figures.mkdir(exist_ok=True)
    for name, chart in page.figures.items():
        for ending in ("png", "svg"):
            save_spec(chart, figures / f"{name}.{ending}")
    size = f"{about['users']:,} users, {about['items']:,} items, {about['interactions']:,} interactions"
    write_page(
        output / "report.html", f"The paper's experiments on {about['title']}", parts, made_by(line),
        f"Diversely Regularized Matrix Factorization (DivMF): five questions, tried again. {size}, lists of {k}.",
    )  # fmt: skip
    text = markdown_of(parts, {f"figures/{name}.png": chart for name, chart in page.figures.items()}, level=3)
    with replacing(output / "results.md") as temporary:
        temporary.write_text(f"## {about['title']}\n\n{size}; `{line}`\n\n{text}", encoding="utf-8")

"""How a command line names data: the same options and the same errors for every command."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divmf.cli.console import Out
from divmf.engine.clock import Clock
from divmf.engine.files import naming
from divmf.engine.masking import masked

if TYPE_CHECKING:
    import polars as pl

    from divmf.data.histories import Histories
    from divmf.data.interactions import Interactions
    from divmf.data.split import Split
    from divmf.ranking.lists import TopK

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Columns:
    """Where in the data the interactions are."""

    user_name: str | None = None
    item_name: str | None = None
    time_name: str | None = None
    query_text: str | None = None
    split_name: str | None = None
    held_out: float | None = None
    min_rating: float | None = None
    rating_name: str | None = None
    time_cut: str | None = None
    weight_name: str | None = None

    user = Annotated[str | None, typer.Option(help="Name of the user column, if it is not a usual one.")]
    score = Annotated[str | None, typer.Option(help="Name of the score column, if it is not a usual one.")]
    rank = Annotated[str | None, typer.Option(help="Name of the rank column, if it is not a usual one.")]
    item = Annotated[str | None, typer.Option(help="Name of the item column, if it is not a usual one.")]
    time = Annotated[str | None, typer.Option(help="Name of the time column, if it is not a usual one.")]
    rating = Annotated[str | None, typer.Option(help="Name of the rating column, if it is not a usual one.")]
    lowest = Annotated[
        float | None, typer.Option("--min-rating", help="Only rows with at least this rating are interactions.")
    ]
    weight = Annotated[
        str | None,
        typer.Option(
            help="Column that says how much a row counts, 0 or more, such as plays or seconds; repeated pairs are"
            " summed. softmax, ease and ials learn from it."
        ),
    ]
    by_time = Annotated[
        str | None,
        typer.Option(
            help="Test on everything from a date on (2024-01-01) or on the latest share of all interactions (20%), and"
            " validate on the tenth before that: nothing is learnt from what comes later."
        ),
    ]
    query = Annotated[str | None, typer.Option(help="SQL query, when DATA is a database URI.")]
    split = Annotated[
        str | None,
        typer.Option("--split-column", help="Column that says train, valid or test, if the data comes with its split."),
    ]
    hold_out = Annotated[
        str | None,
        typer.Option(
            help="Hold out this share of each user's interactions for the test, such as 20%, and half as much for"
            " validation, drawn at random; without it, the last interaction and the one before it."
        ),
    ]

    def check(self, k_core: int) -> None:
        """Refuse options that contradict each other."""
        if self.split_name is not None and k_core:
            raise ValueError("--k-core and --split-column do not go together: a given split is taken as it is")
        if self.split_name is not None and (self.held_out or self.time_cut):
            flag = "--hold-out" if self.held_out else "--by-time"
            raise ValueError(f"{flag} and --split-column do not go together: a given split is taken as it is")
        if self.held_out and self.time_cut:
            raise ValueError("--hold-out draws at random, --by-time takes the latest; choose one of them")
        named = self.user_name, self.item_name, self.time_name, self.query_text, self.rating_name
        if self.split_name is not None and (any(named) or self.min_rating is not None):
            raise ValueError(
                "--split-column takes files with the usual names of columns; leave --user, --item, --time, --min-rating"
                " out"
            )


def load_split(out: Out, data: str, k_core: int, seed: int, columns: Columns, clock: Clock | None = None) -> "Split":
    """DATA as a split: read, cut to its core, one interaction held out for validation and one for the test."""
    clock = clock or Clock()
    with clock.phase("loading libraries"):
        import numpy as np

        from divmf.data.datasets import open_share
        from divmf.data.split import Split, users_in_train_only
        from divmf.engine import comm

    if columns.split_name is not None:
        with clock.phase("reading"):
            split = Split.read(data, columns.split_name, seed, columns.weight_name)
        out.note(f"{masked(data)}: {split!r}, as its column {columns.split_name!r} says")
        return split.of_process(comm.rank(), comm.size()) if comm.size() > 1 else split
    with clock.phase("reading"):
        read = open_share(data, columns.user_name, columns.item_name, columns.time_name, columns.query_text,
                          columns.min_rating, columns.rating_name, columns.weight_name)  # fmt: skip
    if merged := read.total(np.array(read.merged)):
        out.note(f"{masked(data)}: {merged:,} repeated pairs merged")
    with clock.phase("splitting"):
        read = read.k_core(k_core) if k_core else read
        share = columns.held_out
        if columns.time_cut is not None:
            split = split_by_time(read, columns.time_cut)
        else:
            split = read.leave_one_out(seed) if share is None else read.hold_out(seed, valid=share / 2, test=share)
    users, pairs = (read.n_users, len(read)) if read.share is None else (read.share.all_users, read.share.all_pairs)
    out.note(f"{masked(data)}: {users:,} users, {read.n_items:,} items, {pairs:,} interactions")
    if read.times is None and share is None:
        out.note(
            f"{masked(data)}: no time column was found, so what is held out is drawn at random; name it with --time"
        )
    if only := users_in_train_only(split):
        few = "fewer than three interactions" if share is None else "too few interactions to hold any out"
        few = "nothing in the time of the test" if columns.time_cut else few
        out.note(f"{masked(data)}: {only:,} users have {few}: learnt from, not tested")
    return split if read.share or comm.size() == 1 else split.of_process(comm.rank(), comm.size())


def read_lists(
    path: Path, item_ids: "pl.Series | None", user: str | None, item: str | None, score: str | None, rank: str | None
) -> "TopK":
    """Lists from a file; where neither score nor rank says their order, they rank as they stand there."""
    import polars as pl

    from divmf.data.tables import find_column, read_table
    from divmf.ranking.lists import TopK

    with naming(path):
        table = read_table(path)
        named = [find_column(table, role, name, required=False) for role, name in (("score", score), ("rank", rank))]
        if named == [None, None]:
            log.warning("%s has neither a score nor a rank: each user's rows count as ranked as they stand there", path)
            table = table.with_columns(rank=pl.int_range(1, pl.len() + 1).over(find_column(table, "user", user)))
        return TopK.from_frame(table, item_ids, user, item, score, rank)


def take_names(run: Path) -> None:
    """The names of the columns of the log that a run was made of, for the files of this command, too."""
    from divmf.data.called import also_called
    from divmf.train.runs import Run

    if (run / "config.json").exists():
        also_called(Run.open(run).read_facts().get("columns", {}))


def read_users(path: Path, known: "Interactions", user: str | None = None) -> "pl.Series":
    """The distinct user ids of a file, all of them known; those of a text file as the type of the known ones."""
    from divmf.data.tables import file_kind, find_column, read_table

    with naming(path):
        table = read_table(path)
        given = table[find_column(table, "user", user)].unique(maintain_order=True)
        if given.is_empty():
            raise ValueError("there are no rows: name at least one user, or leave --users out")
        if path.is_file() and file_kind(path)[0] in ("csv", "tsv"):  # text does not say what type its ids are
            cast = given.cast(known.user_ids.dtype, strict=False)
            given = cast if cast.cast(given.dtype, strict=False).equals(given) else given
        if known.share is None:
            known.user_numbers(given)
            return given
        return own_users(given, known)


def read_histories(
    path: Path, train: "Interactions", weight: str | None = None, user: str | None = None, item: str | None = None
) -> "Histories":
    """What people who were not in `train` have met, from a file of user_id, item_id and, where known, weights."""
    from divmf.data.histories import Histories
    from divmf.data.tables import read_table

    with naming(path):
        return Histories.from_frame(read_table(path), train.item_ids, user, item, weight, train.mean_weight)


def own_users(given: "pl.Series", known: "Interactions") -> "pl.Series":
    """Those of some users that this process has; one whom no process has is an error that names it."""
    import polars as pl

    from divmf.data.ids import as_ids, numbers_of
    from divmf.data.interactions import check_known

    ids = as_ids(given, "user_id")
    here = numbers_of(ids, known.user_ids) >= 0
    check_known(ids, known.total(here.astype("int64")) > 0)
    return ids.filter(pl.Series(here))


def split_by_time(data: "Interactions", text: str) -> "Split":
    """--by-time: a share such as 20%, or a moment."""
    if text.endswith("%") or text.replace(".", "", 1).isdigit():
        number = positive_share(text, "--by-time") if text.endswith("%") or float(text) < 1 else int(text)
        return data.by_time(number) if isinstance(number, int) else data.by_time(test=number)
    return data.by_time(text)


def held_share(text: str | None) -> float | None:
    """--hold-out: a share that leaves something to learn from, with half of it more for validation."""
    share = None if text is None else positive_share(text, "--hold-out")
    if share is not None and not 0 < share < 2 / 3:
        raise ValueError(
            f"--hold-out {text} leaves nothing to learn from or nothing to test (half as much more goes to validation);"
            " choose more than 0 and less than 66%, such as 20%"
        )
    return share


PICTURES = (".html", ".png", ".svg", ".json")


def check_output(
    path: Path, endings: tuple[str, ...], inputs: Iterable[str | Path | None] = (), columns: Iterable[str] = ()
) -> None:
    """Refuse, before any work is done, an output of a kind we do not write, in a folder that is not there, or in the
    place of what is not an earlier one; inputs and columns: see `divmf.data.outputs.protect`.
    """
    from divmf.data.outputs import protect

    if path.suffix not in endings:
        raise ValueError(f"{path}: unknown kind of file; use one of {', '.join(endings)}")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}; make it first")
    protect(path, inputs, columns if path.suffix in (".csv", ".parquet") else ())


def positive_share(text: str, flag: str) -> float:
    """'5%' or '0.05' as 0.05."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{flag} {text} is not a share; write 5% or 0.05") from None
    if not 0 <= value <= 1:
        raise ValueError(f"{flag} {text} is outside 0 to 100%; write 5% or 0.05")
    return value

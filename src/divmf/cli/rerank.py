"""divmf rerank."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.filters import Filtered, read_rules, say_given, wanted_items
from divmf.cli.inputs import Columns, positive_share, read_lists
from divmf.cli.options import command
from divmf.engine.files import naming

if TYPE_CHECKING:
    import polars as pl

    from divmf.data.interactions import Interactions
    from divmf.engine.arrays import Array
    from divmf.market.rules import Rules
    from divmf.ranking.lists import TopK


PANELS = {
    "The exposure market (--method market)": ("replace", "rho", "ndcg_drop", "valid", "discounts", "use"),
    "What lists may hold": ("catalog", "exclude", "items", "where", "rules"),
    "Columns of the files": ("user", "item", "score", "rank"),
}


@command(app, "rerank", panels=PANELS)
def rerank(
    out: Out,
    lists: Annotated[
        Path | None,
        typer.Argument(help="Long lists of any recommender: user_id, item_id, score; about 100 items per user."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="The reranker; market, if not given. `divmf rerank --list` shows all.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the lists go.")] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Items per list.")] = 5,
    train: Annotated[Path | None, typer.Option(help="Training interactions, for the methods that use them.")] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="The run whose model made LISTS: kwon, karakaya and uimatch then scale scores over all unseen items."
        ),
    ] = None,
    catalog: Annotated[
        Path | None, typer.Option(help="All items there are; if not given, those that appear in LISTS.")
    ] = None,
    settings_given: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, as name=value; may be repeated.")
    ] = None,
    replace: Annotated[
        str | None, typer.Option(help="Share of all slots that may get another item, such as 20%.")
    ] = None,
    rho: Annotated[
        float | None, typer.Option(min=0, help="ρ: what even exposure counts, in spreads of a user's scores.")
    ] = None,
    ndcg_drop: Annotated[
        str | None, typer.Option("--ndcg-drop", help="How much nDCG on --valid may be lost, such as 5%.")
    ] = None,
    valid: Annotated[
        Path | None, typer.Option(help="What the users met later, to measure nDCG on: user_id, item_id.")
    ] = None,
    discounts: Annotated[
        Path | None, typer.Option(help="Write each item's discount here, for later lists (--use).")
    ] = None,
    use: Annotated[
        Path | None,
        typer.Option(help="Take the discounts of this file, made from lists of the same system; nothing is solved."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the methods that draw.")] = 0,
    exclude: Filtered.exclude = None,
    items: Filtered.items = None,
    where: Filtered.where = None,
    rules: Filtered.rules = None,
    show_methods: Annotated[
        bool, typer.Option("--list", help="The methods, their knobs and where they are from.")
    ] = False,
    user: Columns.user = None,
    item: Columns.item = None,
    score: Columns.score = None,
    rank: Columns.rank = None,
) -> None:
    """Rerank any model's lists for aggregate diversity.

    One of --replace, --rho and --ndcg-drop (with --valid) sets the strength of the market. Examples:

      divmf rerank wide.parquet --replace 20% -k 5 -o lists.parquet --discounts discounts.parquet

      divmf rerank tomorrow.parquet --use discounts.parquet -k 5 -o lists.parquet
    """
    if show_methods:
        list_methods(out, method)
        return
    for name, value in (("LISTS", lists), ("--output", output)):
        if value is None:
            raise ValueError(f"{name} is missing; say `divmf rerank LISTS -o OUT`, or --list for the methods")
    assert lists is not None
    method = method or "market"
    options: dict[str, Any] = {"--replace": replace, "--rho": rho, "--ndcg-drop": ndcg_drop, "--use": use}
    strengths = {name: value for name, value in options.items() if value is not None}
    if method != "market" and (of_market := strengths | ({} if discounts is None else {"--discounts": discounts})):
        first, value = next(iter(of_market.items()))
        raise ValueError(f"{first} {value} goes with --method market; {method} has --set and a knob of its own")
    if len(strengths) > 1:
        raise ValueError(f"{' and '.join(strengths)} both say how strong it is; give one of them")
    if rules is not None and (use is not None or discounts is not None):
        raise ValueError("--rules does not go with --discounts and --use: discounts alone do not keep rules")
    if (ndcg_drop is None) != (valid is None):
        raise ValueError("--ndcg-drop and --valid go together: the nDCG of lists is measured on what --valid holds")
    assert output is not None
    from divmf.data.catalogs import ids_of, read_items
    from divmf.data.ids import numbers_of
    from divmf.data.interactions import Interactions
    from divmf.data.outputs import DISCOUNTS, LISTS, protect
    from divmf.data.tables import check_writable, write_table
    from divmf.ranking.metrics import coverage, coverage_ceiling, entropy, gini, measure
    from divmf.rerank import find_method, parse_settings
    from divmf.rerank.candidates import in_given_order, replaced

    chosen = find_method(method)
    given = parse_settings(chosen.function, settings_given or [])
    check_writable(output)
    protect(output, [lists, train, catalog, exclude, items, valid, use], LISTS)
    if discounts is not None:
        check_writable(discounts)
        protect(discounts, [lists, train, catalog, exclude, items, valid, output], DISCOUNTS)
    with naming(catalog):
        item_ids = None if catalog is None else ids_of(read_items(catalog))
    wide = read_lists(lists, item_ids, user, item, score, rank)
    wide = wide.filtered(exclude, wanted_items(wide.item_ids, items, where, catalog))
    wide = in_given_order(wide, k)
    met = None if train is None else Interactions.read(train)
    if met is not None:
        with naming(train):  # ids of another type are refused whether the method looks at them or not
            numbers_of(wide.user_ids, met.user_ids)
            numbers_of(wide.item_ids, met.item_ids)
    ruled = read_rules(rules, catalog)
    with out.progress(f"{method} on {len(wide):,} lists", None):
        lowest = None if run is None else lowest_of_run(run, wide)
        if method == "market":
            strength = Strength(
                None if replace is None else positive_share(replace, "--replace"), rho,
                None if ndcg_drop is None else positive_share(ndcg_drop, "--ndcg-drop"), valid, use,
            )  # fmt: skip
            made, solved = by_market(wide, k, given, strength, discounts, ruled, met)
            given |= {name: value for name, value in strength._asdict().items() if isinstance(value, float)}
        else:
            made, solved = chosen.run(wide, k, given, met, seed, lowest, ruled), {}
    if catalog is None:
        out.note(
            f"the {wide.n_items:,} items in {lists} are taken for the whole catalog; with --catalog it is all there are"
        )
    write_table(made.frame, output)
    before, after = wide.head(k).counts, made.counts
    functions = {"coverage": coverage, "entropy": entropy, "gini": gini}
    rows = [(name, function(before), function(after)) for name, function in functions.items()]
    if valid is not None:
        held_out = wide.matrix_of(Interactions.read(valid))
        rows.append(("ndcg", measure(wide.head(k), held_out)["ndcg"], measure(made, held_out)["ndcg"]))
    changed = replaced(wide.head(k).items, made.items)
    held = int((wide.counts > 0).sum())
    ceiling = min(coverage_ceiling(int(made.lengths.sum()), made.n_items), held / made.n_items)
    long = f"{k}" if (made.lengths == k).all() else f"up to {k}, {made.lengths.mean():.1f} on average"
    title = f"wrote {output}: {len(made):,} lists of {long}; coverage at most {ceiling:.4f}"
    if held < made.n_items:
        title += f": the candidates hold {held:,} of {made.n_items:,} items, longer lists more"
    out.table(title, ["", "the model's own", method], rows)
    if method != "market":
        knob = given.get(chosen.knob, chosen.settings.model_fields[chosen.knob].default)
        out.say(f"{chosen.knob} = {knob:g}, {chosen.neutral:g} is the model's list")
    forced = ", more than --replace: the rules need it" if ruled and changed > given.get("replace", 1) else ""
    out.say(f"{changed:.1%} of the slots hold an item that the model's own list does not{forced}")
    if "gap" in solved:
        out.say(f"ρ = {solved['rho']:.4g}; the best lists of these candidates gain at most {solved['gap']:.1%} more")
    about: dict[str, Any] = {}
    if ruled is not None:
        from divmf.rerank.market import bound_to_lists

        about = {"rules": say_given(out, bound_to_lists(ruled, wide, k, met), made.items)}
    short = int((made.lengths < k).sum())  # the library has warned of them
    out.result({
        "output": str(output), "method": method, "settings": given, **solved, "users": len(made), "k": k,
        "short": short, "replaced": changed, "catalog": made.n_items, "coverage_ceiling": ceiling,
        **{name: after_value for name, _, after_value in rows},
        "before": {name: before_value for name, before_value, _ in rows}, **about,
    })  # fmt: skip


class Strength(NamedTuple):
    """How strong the market is: by one of these; by its settings, if by none."""

    replace: float | None
    rho: float | None
    ndcg_drop: float | None
    valid: Path | None
    use: Path | None


def by_market(
    wide: "TopK", k: int, given: dict[str, Any], strength: Strength, discounts: Path | None,
    rules: "Rules | None" = None, train: "Interactions | None" = None,
) -> tuple["TopK", dict[str, Any]]:  # fmt: skip
    """The market's lists, and what was found beside them; writes the discounts, if a file is named."""
    import polars as pl

    from divmf.data.interactions import Interactions
    from divmf.data.tables import write_table
    from divmf.rerank import check_settings
    from divmf.rerank import market as method
    from divmf.rerank.candidates import ready
    from divmf.rerank.market import MarketOfLists, bound_to_lists

    wide, settings = ready(wide, k), check_settings(method, given)
    order, rho, replace = (settings.pop(name) for name in ("order", "rho", "replace"))
    bound = None if rules is None else bound_to_lists(rules, wide, k, train)
    if bound is not None and strength.use is not None:
        raise ValueError(f"--use {strength.use} and --rules do not go together: nothing is solved at discounts")
    market = MarketOfLists(wide, k, **settings, bound=bound)
    if strength.use is not None:
        made = market.respond(read_discounts(strength.use, wide.item_ids))
        return market.listed(made, order), {"discounts": str(strength.use)}
    replace = replace if strength.replace is None else strength.replace
    if strength.ndcg_drop is not None and strength.valid is not None:
        with naming(strength.valid):
            lost = market.loss_on(wide.matrix_of(Interactions.read(strength.valid)))
        found = market.within(lost, strength.ndcg_drop)
    elif strength.rho is None and replace:
        found = market.within(market.replaced, replace)
    else:
        found = market.at(rho if strength.rho is None else strength.rho)
    certificate = market.certificate(found)
    if discounts is not None:
        write_table(pl.DataFrame({"item_id": wide.item_ids, "discount": certificate.discount}), discounts)
    return market.listed(found, order), {"rho": found.rho, "gap": certificate.gap}


def read_discounts(path: Path, item_ids: "pl.Series") -> "Array":
    """The discounts of a file in the order of items; 0 for those it does not have, which are as new."""
    import numpy as np

    from divmf.data.catalogs import ids_of, same_type
    from divmf.data.ids import numbers_of
    from divmf.data.tables import read_table

    table = read_table(path)
    with naming(path):
        if "discount" not in table.columns or not table["discount"].dtype.is_numeric():
            raise ValueError("it has no column discount of numbers; give a file that --discounts wrote")
        kept = table["discount"].cast(float).to_numpy()
        if not np.isfinite(kept).all() or (kept < 0).any():
            raise ValueError("discounts are numbers of 0 or more; give a file that --discounts wrote")
        numbers = numbers_of(item_ids, same_type(ids_of(table), item_ids))
    return np.where(numbers >= 0, kept[numbers], 0.0)


def lowest_of_run(folder: Path, wide: "TopK") -> "Array":
    """Each user's lowest score of all items not met, by the model of a run before diversifying."""
    from divmf.rerank import lowest_scores
    from divmf.train.runs import Run

    run = Run.open(folder)
    split = run.read_split()
    return lowest_scores(run.read_scorer(), split.known)[split.train.user_numbers(wide.user_ids)]


def list_methods(out: Out, name: str | None) -> None:
    """All methods, or all settings of one."""
    from divmf.rerank import METHODS, find_method, range_of

    if name is not None:
        method = find_method(name)
        fields = method.settings.model_fields
        rows = [[f"{field}{' (knob)' if field == method.knob else ''}", str(about.default), range_of(about),
                 about.description or ""] for field, about in fields.items()]  # fmt: skip
        out.table(f"{name}: {method.summary}", ["setting", "default", "values", "meaning"], rows)
    else:
        rows = [
            [method.name, method.knob, method.knob_range, f"{method.neutral:g}", "yes" if method.needs_train else "",
             method.summary]
            for method in METHODS.values()
        ]  # fmt: skip
        out.table("", ["method", "knob", "values", "neutral", "needs train", "what it is"], rows)
    out.result([
        {"name": method.name, "knob": method.knob, "values": method.knob_range, "neutral": str(method.neutral),
         "needs_train": method.needs_train, "extra": method.extra, "summary": method.summary,
         "citation": method.citation}
        for method in METHODS.values() if name in (None, method.name)
    ])  # fmt: skip

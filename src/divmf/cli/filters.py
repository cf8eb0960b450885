"""How a command line says what may be recommended: --exclude, --items, --where with --catalog."""

from pathlib import Path
from typing import Annotated, Any

import typer


class Filtered:
    """The options of commands that make lists."""

    exclude = Annotated[
        Path | None,
        typer.Option(help="A file of items never to recommend; with a user column, not to these users."),
    ]
    items = Annotated[
        Path | None,
        typer.Option(help="A file of the only items to recommend; with a user column, to these users."),
    ]
    where = Annotated[
        str | None,
        typer.Option(help="Only items for which this holds, an SQL expression over --catalog: \"category = 'Drama'\"."),
    ]
    catalog = Annotated[Path | None, typer.Option(help="The catalog that --where and --rules look into.")]


def wanted_items(item_ids: Any, items: Path | None, where: str | None, catalog: Path | None) -> Any:
    """What `Recommender.lists` takes as `items`: the file, or the ids for which --where holds (those of the file)."""
    if where is None:
        return items
    if catalog is None:
        raise ValueError(f"--where {where!r} looks into the catalog; name its file with --catalog")
    from divmf.data.catalogs import holds, of_items, read_items
    from divmf.data.filters import Filters
    from divmf.engine.files import naming

    with naming(catalog):
        table = of_items(read_items(catalog), item_ids)
    kept = holds(table, where, "--where")
    if items is not None:
        listed, _ = Filters(item_ids, item_ids[:0]).named(items, "--items")
        if listed is None:
            raise ValueError(f"--where and a file of pairs ({items}) do not go together; give --items without users")
        kept = kept & listed
    if not kept.any():
        raise ValueError(f"--where {where!r} leaves none of {len(kept):,} items; check the values in {catalog}")
    return item_ids.filter(kept)

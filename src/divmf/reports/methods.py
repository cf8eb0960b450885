"""What the methods are, and how they are called, for pages."""

from collections.abc import Mapping, Sequence
from typing import Any

from divmf.reports.section import Cell, Table
from divmf.rerank import METHODS

IN_SHORT = {
    "market": "users take turns, and each takes the list that is best when showing a rarely shown item earns a bonus",
    "DivMF": "the paper’s method: training goes on with regularizers that spread the lists over the catalog",
    "kwon": "reverse the order of the items above a score threshold, rarely recommended ones first",
    "karakaya": "walk from an item that is recommended too often to a similar, rarely recommended one",
    "fairmatch": "find rarely recommended items of good quality by repeated maximum flows",
    "uimatch": "match users and items under capacities, the best pairs first",
    "bayes_rule": "discount an item by how much everyone wants it",
    "dual_prices": "each item has a price, raised while it is recommended too often",
    "sinkhorn": "the lists as a transport plan from users to items with a wanted exposure",
    "popcon": "every slot is given to what adds most to score, entropy and coverage",
    "sapid": "users one after the other get what the others are least likely to get",
    "maxflow_coverage": "as many different items as can be recommended at all",
    "mincost_flow": "the best lists when every slot above a wanted exposure has a price",
    "fairrec": "every item is guaranteed some slots, given out in turns",
    "xquad": "a list should hold popular and rare items in the proportion of the user’s past",
    "random_top": "draw from the top of each list at random: a control",
    "most_popular": "the most popular candidates: the opposite of diversity, a control",
}
OWN = {
    "market": "this library",
    "DivMF": "Kim, Jeon, Lee & Kang, the paper this library implements",
}


def method_table(names: Sequence[str]) -> Table:
    """What each method does, in a line, and where it is from."""
    rows: list[list[Cell]] = [
        [name, in_short(name), OWN.get(plain(name)) or METHODS[name].citation] for name in names
    ]  # fmt: skip
    return Table(["Method", "what it does", "from"], rows, left=(0, 1, 2), fold="What each method does")


def in_short(name: str) -> str:
    """What a method does in plain words; a name that is no method of ours stands for itself."""
    return IN_SHORT.get(plain(name), name)


def plain(name: str) -> str:
    """The method's own name, without the folder that tells runs of one method apart."""
    return name.partition(" (")[0]


def knob_of(name: str, knob: float | None) -> str:
    """How a method is set, such as `a = 0.3`."""
    return f"{METHODS[plain(name)].knob if plain(name) in METHODS and plain(name) != 'market' else 'ρ'} = {knob:.4g}"


def rerank_command(lists: str, method: str, settings: Mapping[str, Any], more: str) -> str:
    """The command that makes a method's lists."""
    sets = " ".join(f"--set {name}={str(value).removesuffix('.0')}" for name, value in settings.items())
    return f"divmf rerank {lists} --method {method} {sets} {more}"

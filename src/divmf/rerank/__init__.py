"""Rerankers: from a wide TopK of any model to lists of k, each along its own accuracy–diversity curve.

`METHODS` holds each with its knob, the knob's grid and its citation; every function here takes
`(candidates, k, *, settings …)` and gives a TopK.
"""

from divmf.rerank.bayes_rule import bayes_rule
from divmf.rerank.dual_prices import dual_prices
from divmf.rerank.fairmatch import fairmatch
from divmf.rerank.fairrec import fairrec
from divmf.rerank.karakaya import karakaya
from divmf.rerank.kwon import kwon
from divmf.rerank.market import market
from divmf.rerank.maxflow_coverage import maxflow_coverage
from divmf.rerank.mincost_flow import mincost_flow
from divmf.rerank.most_popular import most_popular
from divmf.rerank.optimal import Gap, gap, optimal
from divmf.rerank.popcon import popcon
from divmf.rerank.random_top import random_top
from divmf.rerank.registry import METHODS, Method, find_method
from divmf.rerank.sapid import sapid
from divmf.rerank.settings import check_settings, parse_settings, range_of, settings_of
from divmf.rerank.sinkhorn import sinkhorn
from divmf.rerank.sweep import lowest_scores, sweep, sweep_points
from divmf.rerank.uimatch import uimatch
from divmf.rerank.xquad import xquad

__all__ = [
    "METHODS",
    "Gap",
    "Method",
    "bayes_rule",
    "check_settings",
    "dual_prices",
    "fairmatch",
    "fairrec",
    "find_method",
    "gap",
    "karakaya",
    "kwon",
    "lowest_scores",
    "market",
    "maxflow_coverage",
    "mincost_flow",
    "most_popular",
    "optimal",
    "parse_settings",
    "popcon",
    "random_top",
    "range_of",
    "sapid",
    "settings_of",
    "sinkhorn",
    "sweep",
    "sweep_points",
    "uimatch",
    "xquad",
]  # fmt: skip

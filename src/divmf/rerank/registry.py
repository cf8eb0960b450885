"""The rerankers by name: what each turns, over which values, and where it is from. One line a method."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import Parameter, signature
from math import inf
from typing import Any

from pydantic import BaseModel

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.market.rules import Rules
from divmf.ranking.lists import TopK
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
from divmf.rerank.popcon import popcon
from divmf.rerank.random_top import random_top
from divmf.rerank.sapid import sapid
from divmf.rerank.settings import range_of, settings_of
from divmf.rerank.sinkhorn import sinkhorn
from divmf.rerank.uimatch import uimatch
from divmf.rerank.xquad import xquad

NEEDS = {"flow": "ortools"}  # the module that an extra of the package brings


@dataclass(frozen=True)
class Method:
    """A reranker and the one setting that trades accuracy for diversity.

    knob      the name of that setting
    grid      its values from neutral, where lists are the model's own, to strongest
    citation  authors, venue and year
    variants  other settings worth a curve of their own, so that a comparison can give the method its best
    extra     the extra of the package it needs
    """

    function: Callable[..., TopK]
    knob: str
    grid: tuple[float, ...]
    citation: str
    variants: tuple[Mapping[str, Any], ...] = ({}, {"order": "score"})
    extra: str | None = None

    @property
    def name(self) -> str:
        """The name of the function, and of the method on the command line."""
        return self.function.__name__

    @property
    def missing(self) -> str:
        """What must be installed before the method can run; nothing if it can."""
        return (
            f"it needs `pip install 'divmf[{self.extra}]'`" if self.extra and not find_spec(NEEDS[self.extra]) else ""
        )

    @property
    def summary(self) -> str:
        """What the method is, in the first line of its docstring."""
        return (self.function.__doc__ or "").splitlines()[0]

    @property
    def neutral(self) -> float:
        """The value of the knob at which the lists are the model's own."""
        return self.grid[0]

    @property
    def counts(self) -> bool:
        """Whether the knob counts something: its values are whole numbers."""
        return self.settings.model_fields[self.knob].annotation is int

    @property
    def settings(self) -> type[BaseModel]:
        """The frozen model of the settings: names, types, ranges, defaults and meanings."""
        return settings_of(self.function)

    @property
    def knob_range(self) -> str:
        """The values the knob may take, in words."""
        return range_of(self.settings.model_fields[self.knob])

    @property
    def takes_train(self) -> bool:
        """Whether the method can use the training interactions."""
        return "train" in signature(self.function).parameters

    @property
    def needs_train(self) -> bool:
        """Whether the method cannot do without the training interactions."""
        parameters = signature(self.function).parameters
        return "train" in parameters and parameters["train"].default is Parameter.empty

    @property
    def takes_rules(self) -> bool:
        """Whether the method can keep rules."""
        return "rules" in signature(self.function).parameters

    @property
    def takes_lowest(self) -> bool:
        """Whether the method scales scores, and can do so over all unseen items."""
        return "lowest" in signature(self.function).parameters

    def run(
        self,
        candidates: TopK,
        k: int = 5,
        settings: Mapping[str, Any] | None = None,
        train: Interactions | None = None,
        seed: int | None = None,
        lowest: Array | None = None,
        rules: Rules | None = None,
    ) -> TopK:
        """Rerank with settings given by name; `train`, `seed`, `lowest` and `rules` go to the methods that take them.

        Args:
            candidates: Lists longer than k, of any model.
            k: The length of a list.
            settings: Names and values; a method's defaults for the others.
            train: The interactions that the model was trained on.
            seed: Of what the method draws.
            lowest: Each user's lowest score of all unseen items (`lowest_scores`), where the model is at hand.
            rules: What the lists keep; a method that cannot is an error.

        Returns:
            The lists of k.
        """
        if self.needs_train and train is None:
            raise ValueError(f"{self.name} needs the training interactions; give train=… (--train on the command line)")
        arguments: dict[str, Any] = dict(settings or {})
        if self.takes_train:
            arguments["train"] = train
        if self.takes_lowest:
            arguments["lowest"] = lowest
        if rules is not None:
            if not self.takes_rules:
                able = ", ".join(method.name for method in ALL if method.takes_rules)
                raise ValueError(f"{self.name} cannot keep rules; these can: {able}")
            arguments["rules"] = rules
        if seed is not None and "seed" in self.settings.model_fields:
            arguments.setdefault("seed", seed)
        return self.function(candidates, k, **arguments)


TENTHS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)

ALL = (
    Method(market, "rho", (0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.3, 2, 4, 8, 16, 32),
           "Monderer & Shapley, Games and Economic Behavior 1996"),
    Method(kwon, "t_r", (1, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0), "Adomavicius & Kwon, TKDE 2012",
           ({}, {"ranking": "popularity"}, {"ranking": "liked"}, {"scale": "candidates"}, {"order": "score"})),
    Method(karakaya, "threshold", TENTHS[::-1], "Karakaya & Aytekin, KAIS 2018",
           ({}, {"scale": "candidates"}, {"order": "score"})),
    Method(fairmatch, "t", (1, 10, 15, 20, 30, 50, 75, 100), "Mansoury et al., UMAP 2020",
           ({"beta": 0.2}, {}, {"beta": 1.0}, {"order": "score"})),
    Method(uimatch, "c", (inf, 10, 5, 3, 2, 1.5, 1.25, 1, 0.5, 0.25), "Dong, Xie & Li, IEEE Access 2021",
           ({}, {"gamma": 0.0}, {"normalise": "softmax"}, {"normalise": "zscore"}, {"order": "score"})),
    Method(bayes_rule, "a", (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1), "Vargas & Castells, RecSys 2014"),
    Method(dual_prices, "c", (inf, 50, 20, 10, 7, 5, 3, 2, 1.5, 1), "Held, Wolfe & Crowder, Math. Programming 1974"),
    Method(sinkhorn, "rho", TENTHS, "Cuturi, NIPS 2013"),
    Method(popcon, "beta", (0, 10, *(round(10 ** (quarter / 4)) for quarter in range(6, 25))),  # to a million
           "Jeon et al., PAKDD 2023"),
    Method(sapid, "c", (1, 10, 15, 20, 30, 50, 75, 100), "Kim & Kang, WSDM 2025"),
    Method(maxflow_coverage, "t_h", TENTHS[::-1], "Adomavicius & Kwon, INFORMS J. on Computing 2014"),
    Method(mincost_flow, "alpha", (1, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05, 0), "Antikacioglu & Ravi, KDD 2017",
           extra="flow"),
    Method(fairrec, "alpha", TENTHS, "Patro et al., WWW 2020"),
    Method(xquad, "weight", TENTHS, "Abdollahpouri, Burke & Mobasher, FLAIRS 2019"),
    Method(random_top, "c", (1, 6, 8, 10, 15, 20, 30, 50, 100), "a control, from no paper"),
    Method(most_popular, "weight", (0, 0.1, 0.2, 0.4, 0.6, 0.8, 1), "Cremonesi et al., RecSys 2010"),
)  # fmt: skip

METHODS: dict[str, Method] = {method.name: method for method in ALL}


def find_method(name: str) -> Method:
    """The method of this name, or an error that lists the names."""
    if name not in METHODS:
        raise ValueError(f"there is no reranker {name!r}; choose one of {', '.join(METHODS)}")
    return METHODS[name]

"""The face for users: `DivMF`, `Recommender`, `diversify` and `load`."""

from divmf.estimator.divmf import DivMF, final_of
from divmf.estimator.given import diversify
from divmf.estimator.loading import load
from divmf.estimator.recommender import Recommender, Seen

__all__ = ["DivMF", "Recommender", "Seen", "diversify", "final_of", "load"]

"""The equations of the paper, as plain differentiable functions of scores.

R̂ is a block of scores (rows, n_items); `kept` are the item numbers of the entries of T that are not masked,
(rows, m). T itself is never built: its kept entries are gathered, the rest of it is zero.
"""

from torch import Tensor
from torch.nn.functional import logsigmoid


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """L_acc, Sec. 3.3.1: −Σ log σ(r̂_ui − r̂_uj) over pairs of an item i the user met and an item j not met."""
    return -logsigmoid(positive - negative).sum()


def mse(positive: Tensor, negative: Tensor) -> Tensor:
    """The squared error to R, which the paper names beside BPR: Σ (1 − r̂_ui)² + Σ (0 − r̂_uj)²."""
    return (1 - positive).square().sum() + negative.square().sum()


ACCURACY_LOSSES = {"bpr": bpr, "mse": mse}


def softmax(scores: Tensor, rows: Tensor, met: Tensor, weights: Tensor | None = None) -> Tensor:
    """L_soft: −Σ log softmax(R̂_u)_i over the pairs (row, item met): each user's next item out of all of them.

    Ours: not in the paper. Its gradient in the scores is n_u·S_u − Y_u, with weights n_u the sum of them.
    """
    each = scores.log_softmax(dim=1)[rows, met]
    return -(each if weights is None else weights * each).sum()


def log_mass(scores: Tensor, kept: Tensor, log_z: Tensor | None = None) -> Tensor:
    """log t_ui of the kept entries, Sec. 3.2.1: S_u = softmax(R̂_u) over all items, T_u = top(S_u, m).  (rows, m)

    The items that are not kept take part through the denominator of the softmax alone (log_z is its logarithm, where
    known already), so Reg_cov can only push them down.
    """
    log_z = scores.logsumexp(dim=1) if log_z is None else log_z
    return scores.gather(1, kept) - log_z[:, None]


def column_mass(t: Tensor, kept: Tensor, n_items: int) -> Tensor:
    """c_i = Σ_u t_ui: how much of the users' attention item i has.  (n_items,)"""
    return t.new_zeros(n_items).index_add(0, kept.flatten(), t.flatten())


def coverage(mass: Tensor, eps: float) -> Tensor:
    """Reg_cov, Sec. 3.2.1: −Σ_i log(c_i + ε).

    Lowest, −|I| log(|U|/|I|) at ε = 0, when every item has the same mass (Theorem 1).
    Differs: ε keeps an item in nobody's T from making it infinite.
    """
    return -(mass + eps).log().sum()


def skewness(log_t: Tensor) -> Tensor:
    """Reg_skew, Sec. 3.2.2: Σ_u Σ_i t'_ui log t'_ui, with t' the rows of T scaled to sum 1.

    Lowest, −|U| log m, when each row's m kept scores are equal (Lemma 1). Taken from log t, since
    t'_u = softmax(log t_u): where t underflows to 0, t / Σt would give 0/0.
    """
    log_p = log_t.log_softmax(dim=1)  # (rows, m)
    return (log_p.exp() * log_p).sum()


def score_gradient_(
    scores: Tensor, kept: Tensor, skewed: Tensor | None, log_z: Tensor, mass: Tensor | None, eps: float
) -> Tensor:
    """∂L_div/∂R̂ of some rows with c constant, written over their scores.  (rows, n_items)

    Through the softmax, with g_i = ∂Reg_cov/∂s_i = −1/(c_i + ε) on the kept items and 0 elsewhere,
    ∂Reg_cov/∂r_j = s_j (g_j − Σ_i g_i s_i); and with p the softmax of the scores of the `skewed` items,
    ∂Reg_skew/∂r_j = p_j (log p_j − Σ_i p_i log p_i). log_z is the logarithm of the softmax's denominator; a mass of
    None leaves Reg_cov out, skewed = None Reg_skew.
    Ours: by hand, since autograd makes eight passes over a chunk where this makes one.
    """
    if skewed is not None:
        log_p = scores.gather(1, skewed).log_softmax(dim=1)
        p = log_p.exp()
        spread = p * (log_p - (p * log_p).sum(dim=1, keepdim=True))  # before the scores are written over
    if mass is None:
        gradient = scores.zero_()
    else:
        pull = -log_mass(scores, kept, log_z).exp() / (mass + eps)[kept]  # g_i s_i, all negative
        # s_j · (−Σ g s) for every item, in one pass: the sum goes into the exponent
        gradient = scores.add_(((-pull.sum(dim=1)).log() - log_z)[:, None]).exp_()
        gradient.scatter_add_(1, kept, pull)
    return gradient if skewed is None else gradient.scatter_add_(1, skewed, spread)


def diversity(scores: Tensor, kept: Tensor, eps: float, skewed: int | None = None) -> Tensor:
    """L_div = Reg_cov + Reg_skew of a whole matrix at once, Sec. 3.2.3: what the chunked training must equal.

    skewed: Reg_skew reads the first so many of the kept items; none: all of T, the letter of the paper
    """
    log_t = log_mass(scores, kept)
    return coverage(column_mass(log_t.exp(), kept, scores.shape[1]), eps) + skewness(log_t[:, :skewed])

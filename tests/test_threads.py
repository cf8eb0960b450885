"""Threads: how many there are changes no number."""

import os
import subprocess
import sys

PROGRAM = """
import hashlib
import numpy as np, torch
from scipy import sparse
from divmf.model import MF
from divmf.prices import Bonus, Market, solve
from divmf.softmax import softmax_gradient
from divmf.threads import threads
from divmf.topk import recommend

rng = np.random.default_rng(0)
model = MF(*(torch.from_numpy(rng.normal(size=size).astype(np.float32)) for size in ((307, 9), (211, 9), 211)))
met = sparse.csr_array((rng.random((307, 211)) < 0.1).astype(np.float32))
loss = softmax_gradient(model, met, 0.5)
lists = recommend(model, met, 5)
found = solve(Market(model, met, 5), 0.3, np.zeros(211, dtype=np.float32), Bonus())
print(threads(), loss.hex(), found.gap.hex(), found.score.hex())
for array in (model.users.grad.numpy(), model.items.grad.numpy(), *lists, found.price):
    print(hashlib.sha256(array.tobytes()).hexdigest())
"""


def test_gradients_lists_and_prices_are_the_same_to_the_last_bit_on_one_thread_and_on_three() -> None:
    def run(threads: int) -> list[str]:
        environment = os.environ | {"DIVMF_THREADS": str(threads)}
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    one, three = run(1), run(3)
    assert (one[0], three[0]) == ("1", "3")
    assert one[1:] == three[1:]

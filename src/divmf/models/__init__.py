"""What scores: the seam `Scorer`, and the models behind it.

    from divmf.models.auto import choose, refit
    chosen = choose(split, k=5, budget=60.0)                  # scorer, name, settings, tried
    people = fold_in(chosen, histories)                       # models.fold_in: people who were not in training
    final = refit(chosen.name, chosen.settings, everything)   # the same settings on all interactions

`ease`, `ials` and `softmax` fit one model each; `stored` turns any scorer into tensors and back; `items` finds similar
items and adds new ones; `accuracy` measures a scorer on validation. The modules are imported by name, since each costs
something to load.
"""

"""How long the synthetic marketplace takes at ten million interactions."""

import time


def main() -> None:
    """Make two large markets and print a Markdown table."""
    from divmf.data.datasets import marketplace

    print("| users × items × interactions | seconds |\n|---|---|")
    for users, items in ((1_000_000, 20_000), (70_000, 44_000)):
        began = time.perf_counter()
        made = marketplace(users, items, 10_000_000, seed=0)
        print(f"| {made.n_users:,} × {made.n_items:,} × {len(made):,} | {time.perf_counter() - began:.1f} |")

"""Experiments: every method on the same model's lists, at the same loss of accuracy."""

"""Interactions and where they come from: ids, tables, splits, datasets, what is on disk."""

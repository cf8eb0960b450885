"""The exposure market: the best lists from any model's scores, where showing an item earns the more, the less it is."""

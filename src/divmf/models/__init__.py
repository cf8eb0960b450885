"""What scores: the seam `Scorer`, and the models behind it."""

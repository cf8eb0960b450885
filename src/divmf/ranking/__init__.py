"""Lists and what they are worth: top-k, metrics, intervals, the accuracy-diversity curve."""

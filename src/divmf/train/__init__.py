"""From a split to a run folder: settings in, epochs and points out, resumable."""

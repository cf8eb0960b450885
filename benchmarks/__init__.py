"""Side-by-side measurements: `python -m benchmarks NAME`. Figures go to docs/benchmarks.md with the command."""

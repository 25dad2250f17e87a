"""How fast and how small, measured inside one run: `python -m tests.benchmarks start stream idle storage journal wire`.

Ratios and counts gate (exit 1 beyond the noise of an A/A run), absolute figures are printed beside
them. `--plant slow` and `--plant timer` put in the fault that a gate must find: a benchmark that does
not fail then measures nothing.
"""

"""Benchmarks: Orbit beside the raw SQL of the same rows on the same server, in one run (design 7.2).

`manage.py orbit_bench` runs them. Figures of different machines, or of different runs, are not to be compared; the
ratios are.
"""

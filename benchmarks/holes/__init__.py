"""Mutants of what the gate reads, by machine; see :mod:`benchmarks.holes.__main__`."""

"""Mutants of a suite, made by machine, against the gate; see :mod:`benchmarks.mutants.__main__`."""

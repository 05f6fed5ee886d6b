"""Kernel languages: Python functions whose kernels are compiled ahead of time, without a GPU."""

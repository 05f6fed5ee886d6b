"""Numba-CUDA: kernels of the calls ``kernel[grid, block](…)``, compiled ahead of time."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="numba", languages={"numba": "flashcore.features.languages.numba.language:LANGUAGE"})

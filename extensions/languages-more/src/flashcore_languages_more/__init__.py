"""Numba-CUDA, CuTe DSL and cuTile: kernels compiled ahead of time, without a GPU, and launched from their cubins."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="languages_more",
    languages={name: f"flashcore_languages_more.{name}:LANGUAGE" for name in ("numba", "cute", "cutile")},
)

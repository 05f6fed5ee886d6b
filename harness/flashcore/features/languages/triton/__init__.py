"""Triton: kernels compiled ahead of time from stand-ins for their tensors, and kernels recorded on a GPU."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="triton", languages={"triton": "flashcore.features.languages.triton.language:LANGUAGE"})

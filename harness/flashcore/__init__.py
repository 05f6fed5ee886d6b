"""FlashCore: profile CUDA kernel families, draw their rooflines, gate their promises."""

__version__ = "0.1.0"

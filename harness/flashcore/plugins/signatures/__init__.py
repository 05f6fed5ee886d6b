"""Signatures of recorded runs by SSH keys."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="signatures",
    commands={"sign": "flashcore.plugins.signatures.command"},
    help={"sign": "sign a recorded run with an SSH key"},
    groups={"sign": "share"},
    options={"gate": "flashcore.plugins.signatures.gate_options"},
)

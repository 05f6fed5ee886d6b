"""Searches a space: candidates are built and gated without a GPU, then checked and timed on one, and recorded.

``grid`` numbers the points, ``samplers`` propose, ``candidates`` builds and gates, ``trial`` measures, ``study``
records, ``tune`` is the loop, ``finalists`` decides as ``bench --against`` does and offers the winner as a variant.
"""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="tune",
    commands={"tune": "flashcore_tune.command"},
    help={"tune": "search a space of configs"},
)

"""Maps a family of kernels: which variant wins where, by how much, and what a dispatcher's choice costs.

``table`` draws the points, ``looks`` races the variants at one, ``regions`` reads the record, ``tree`` fits a
dispatcher.
"""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="map",
    commands={"map": "flashcore_map.command"},
    help={"map": "which variant wins where, and what a dispatcher's choice costs"},
    pages={"map": "flashcore_map.page:page"},
    facts={"regret": "flashcore_map.regions:REGRET"},
    verdicts={"map": "flashcore_map.regions:verdicts"},
)

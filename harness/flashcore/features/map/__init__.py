"""Maps a family of kernels: which variant wins where, by how much, and what a dispatcher's choice costs.

``table`` draws the points, ``looks`` races the variants at one, ``regions`` reads the record, ``tree`` fits a
dispatcher.
"""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="map",
    commands={"map": "flashcore.features.map.command"},
    help={"map": "which variant wins where, and what a dispatcher's choice costs"},
    pages={"map": "flashcore.features.map.page:page"},
    facts={"regret": "flashcore.features.map.regions:REGRET"},
    tables={"map": "flashcore.features.map.table:MapForm"},
    verdicts={"map": "flashcore.features.map.regions:verdicts"},
)

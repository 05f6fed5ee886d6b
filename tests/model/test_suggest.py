from __future__ import annotations

from flashcore.model.suggest import did_you_mean


def test_the_nearest_name_is_offered_and_only_a_near_one() -> None:
    known = ("registers", "spill_store_bytes", "NVIDIA H200")
    assert did_you_mean("regsters", known) == " (did you mean registers?)"
    assert did_you_mean("spill_stores_*", known) == " (did you mean spill_store_bytes?)"
    assert did_you_mean("nvidia h20", known) == " (did you mean NVIDIA H200?)"
    assert did_you_mean("spill*", known) == " (did you mean spill_store_bytes?)"
    assert did_you_mean("occupancy", known) == did_you_mean("*", known) == did_you_mean("r", known) == ""
    assert did_you_mean("x", ()) == ""

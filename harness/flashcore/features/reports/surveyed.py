"""The facts of a capture's survey: the time and the number of a kernel's launches."""

from __future__ import annotations

from flashcore.model.catalogue import FactSpec, Kind

TIME, COUNT = "traced_duration", "traced_launches"
SPEC = FactSpec(TIME, "ns", "timing", Kind.NONE, "mean time of launches in the traced run", "lower", group="imported")
COUNT_SPEC = FactSpec(COUNT, "1", "timing", Kind.NONE, "launches that a capture's survey saw", group="imported")

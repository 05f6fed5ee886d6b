"""What the index of runs has beside a series of times: all that a run measured about a case, and on which machine."""

from __future__ import annotations

import json

from flashcore.features.runs.index import Index, TimePoint

_CLOCK = 0.02  # relative change of a clock from which it is named


class Nights(Index):
    """The runs of some places, as of now."""

    def values(self, run: str, variant: str, shape: str) -> dict[str, float]:
        """Everything that a run measured about a case and its variant."""
        rows = self._base.execute(
            """SELECT n.name, f.value FROM runs r CROSS JOIN cases c CROSS JOIN names n
            CROSS JOIN facts f ON f."case" = c.key AND f.name = n.key AND f.run = r.key
            WHERE r.id = ? AND c.variant = ? AND c.shape IN (?, '')
              AND r.folder IN (SELECT value FROM json_each(?))""",
            (run, variant, shape, json.dumps(self._folders)),
        )
        return dict(rows)


def differences(before: TimePoint, after: TimePoint) -> list[str]:
    """The differences of GPU, driver, limits, compiler and clock between two points, in words."""
    pairs = {
        "GPU": (before.uuid, after.uuid),
        "driver": (before.driver, after.driver),
        "limits": (before.limits, after.limits),
        "nvcc": (before.nvcc, after.nvcc),
    }
    changed = [f"{name} {was or 'unknown'} → {now or 'unknown'}" for name, (was, now) in pairs.items() if was != now]
    if before.clock and after.clock and abs(after.clock / before.clock - 1) > _CLOCK:
        changed.append(f"clock {before.clock:,.0f} → {after.clock:,.0f} MHz")
    return changed

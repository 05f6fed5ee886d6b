"""Random changes of data, and the number of examples that a fuzz test takes."""

from __future__ import annotations

import contextlib
import copy
import os
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FLASHCORE_FUZZ", "0")) or 100


def fuzz(share: float) -> settings:
    """So large a share of the examples."""
    count = max(4, round(share * EXAMPLES))
    return settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True,
        derandomize="FLASHCORE_FUZZ" not in os.environ,  # `make test` is the same each time
    )  # fmt: skip


SEEDS = st.integers(0, 2**48)

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([0, -1, 10**400, 1e308, 2**63, "", "nan", "../x", "a\nb", "\udcff", "\x00", "$(x)", "*"])
)  # fmt: skip

VALUES = st.lists(SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=4), SCALARS, max_size=2),
                  min_size=1, max_size=4)  # fmt: skip


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything but the whole."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from leaves(value, (*path, key))


def changed(data: Any, values: list[Any], chance: random.Random) -> Any:
    """The data with as many changes as there are values: set, dropped, added, doubled, or exchanged for another's."""
    data = copy.deepcopy(data)
    for value in values:
        places = list(leaves(data))
        if not places:
            break
        *way, last = chance.choice(places)
        inner = data
        for key in way:
            inner = inner[key]
        match chance.randrange(6):
            case 0:
                del inner[last]
            case 1 if isinstance(inner, dict):
                inner[chance.choice([str(value)[:20], *inner])] = value
            case 2 if isinstance(inner, list):
                inner.insert(last, copy.deepcopy(inner[last]))
            case 3:
                *other_way, other = chance.choice(places)
                source = data
                for key in other_way:
                    with contextlib.suppress(LookupError, TypeError):
                        source = source[key]
                if isinstance(source, dict | list) and other in (
                    source if isinstance(source, dict) else range(len(source))
                ):
                    inner[last] = copy.deepcopy(source[other])
            case _:
                inner[last] = value
    return data


def noised(data: bytes, values: list[Any], chance: random.Random) -> bytes:
    """The bytes with pieces lost, doubled, exchanged or written over."""
    for value in values:
        a, b = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + chance.choice([1, 3, 40, len(data)]))
        new = chance.choice(
            [b"", data[a:b] * 2, str(value).encode(errors="replace"), bytes([chance.randrange(256)]), b'"', b","]
        )
        data = data[:a] + new + data[b:]
    return data

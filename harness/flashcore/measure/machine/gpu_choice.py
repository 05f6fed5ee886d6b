"""Which of this host's GPUs a run uses: ``--gpus all``, a number of them, or those of certain UUIDs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flashcore.errors import UsageError
from flashcore.measure.machine import gpu, gpu_lease
from flashcore.measure.machine.gpu import Gpu

ALL = "all"


def visible() -> dict[str, Gpu]:
    """The GPUs that this process may use, by UUID in the driver's order."""
    if Gpu.find() is None:
        return {}
    gpus = ((uuid, Gpu.numbered(number)) for number, uuid in enumerate(gpu.uuids()))
    return {uuid: gpu for uuid, gpu in gpus if gpu is not None}


def by_kind(requested: str, available: Mapping[str, Gpu]) -> list[dict[str, Gpu]]:
    """The GPUs that the user requests, by kind, since a run is about one kind of machine; none without a GPU.

    Args:
        requested: ``all``; a number: so many of the first GPU's kind, unleased ones first; or UUIDs or their
            beginnings, separated by commas.

    Raises:
        UsageError: there are no such GPUs, or fewer than requested.
    """
    kinds: dict[object, dict[str, Gpu]] = {}
    everything = requested == ALL or requested.isdigit() or not available
    for uuid in available if everything else _named(requested, available):
        gpu = available[uuid]
        kinds.setdefault((gpu.name, gpu.capability, gpu.memory_bytes), {})[uuid] = gpu
    groups = list(kinds.values())
    if requested.isdigit() and groups:
        first = groups[0]
        if not 0 < int(requested) <= len(first):
            raise UsageError(f"--gpus {requested}: expected 1 to {len(first)}, the number of GPUs of one kind here")
        free_first = sorted(first, key=lambda uuid: not gpu_lease.is_free(uuid))
        return [{uuid: first[uuid] for uuid in free_first[: int(requested)]}]
    return groups


def chosen(requested: str, available: Mapping[str, Gpu], say: Callable[[str], None] = lambda _: None) -> dict[str, Gpu]:
    """The GPUs of a run: one kind. Of ``all`` those of the first GPU's kind; ``say`` is called with the others.

    Raises:
        UsageError: see :func:`by_kind`; or the requested GPUs are of several kinds.
    """
    kinds = by_kind(requested, available)
    if requested != ALL and len(kinds) > 1:
        raise UsageError(
            f"--gpus {requested}: expected GPUs of one kind, found {listed(*kinds)}\n  hint: once for each kind of GPU"
        )
    for other in kinds[1:]:
        say(f"left out, of another kind than {listed(kinds[0])}: {listed(other)}; to use: --gpus {','.join(other)}")
    return kinds[0] if kinds else {}


def listed(*kinds: Mapping[str, Gpu]) -> str:
    """GPUs by UUID and name."""
    return ", ".join(f"{uuid} ({gpu.name})" for kind in kinds for uuid, gpu in kind.items())


def _named(requested: str, available: Mapping[str, Gpu]) -> list[str]:
    """The UUIDs that the user's words mean."""
    uuids: dict[str, None] = {}
    for word in filter(None, map(str.strip, requested.split(","))):
        matching = [uuid for uuid in available if uuid.startswith((word, f"GPU-{word}"))]
        if len(matching) != 1:
            problem = "several" if matching else "none"
            raise UsageError(f"--gpus {word}: expected the UUID of one GPU, found {problem} among {listed(available)}")
        uuids[matching[0]] = None
    if not uuids:
        raise UsageError(
            f"--gpus {requested!r}: expected all, a number or UUIDs separated by commas, found none of these"
        )
    return list(uuids)

"""Which of this host's GPUs a run uses: ``--gpus all``, so many of them, or those of certain UUIDs."""

from __future__ import annotations

from collections.abc import Mapping

from flashcore.errors import UsageError
from flashcore.machine import gpu_lease
from flashcore.machine.gpu import Gpu

ALL = "all"


def visible() -> dict[str, Gpu]:
    """The GPUs that this process may use, by UUID in the driver's order."""
    if Gpu.find() is None:
        return {}
    found = {uuid: Gpu.numbered(number) for number, uuid in enumerate(gpu_lease.visible())}
    return {uuid: gpu for uuid, gpu in found.items() if gpu is not None}


def chosen(asked: str, among: Mapping[str, Gpu]) -> dict[str, Gpu]:
    """The GPUs that the user asks for, all of one kind, since a run is about one kind of machine.

    Args:
        asked: ``all`` (of the first one's kind); a number: so many, unleased ones first; or UUIDs or their beginnings,
            separated by commas.

    Raises:
        UsageError: there are no such, not so many, or they are of several kinds.
    """
    kinds = {uuid: (gpu.name, gpu.capability, gpu.memory_bytes) for uuid, gpu in among.items()}
    first = [uuid for uuid in among if kinds[uuid] == next(iter(kinds.values()))]
    if asked == ALL or not among:
        return {uuid: among[uuid] for uuid in first}
    if asked.isdigit():
        if not 0 < int(asked) <= len(first):
            raise UsageError(f"--gpus {asked}: expected 1 to {len(first)}, the number of GPUs of one kind here")
        busy = [uuid for uuid in first if not gpu_lease.is_free(uuid)]
        return {uuid: among[uuid] for uuid in [*(u for u in first if u not in busy), *busy][: int(asked)]}
    found: list[str] = []
    for word in filter(None, (w.strip() for w in asked.split(","))):
        matching = [uuid for uuid in among if uuid.startswith((word, f"GPU-{word}"))]
        if len(matching) != 1:
            known = ", ".join(f"{uuid} ({gpu.name})" for uuid, gpu in among.items())
            problem = "several" if matching else "none"
            raise UsageError(f"--gpus {word}: expected the UUID of one GPU, found {problem} among {known}")
        found += [uuid for uuid in matching if uuid not in found]
    if not found:
        raise UsageError(f"--gpus {asked!r}: expected all, a number or UUIDs separated by commas, found none of these")
    if len({kinds[uuid] for uuid in found}) > 1:
        names = ", ".join(f"{uuid} ({among[uuid].name})" for uuid in found)
        raise UsageError(
            f"--gpus {asked}: expected GPUs of one kind, found {names}\n  hint: record a run for each kind of GPU"
        )
    return {uuid: among[uuid] for uuid in found}

"""Which of this host's GPUs a run uses: ``--gpus all``, so many of them, or those of certain UUIDs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flashcore.errors import UsageError
from flashcore.measure.machine import gpu_lease
from flashcore.measure.machine.gpu import Gpu

ALL = "all"


def visible() -> dict[str, Gpu]:
    """The GPUs that this process may use, by UUID in the driver's order."""
    if Gpu.find() is None:
        return {}
    found = {uuid: Gpu.numbered(number) for number, uuid in enumerate(gpu_lease.visible())}
    return {uuid: gpu for uuid, gpu in found.items() if gpu is not None}


def by_kind(asked: str, among: Mapping[str, Gpu]) -> list[dict[str, Gpu]]:
    """The GPUs that the user asks for, by kind, since a run is about one kind of machine; none without a GPU.

    Args:
        asked: ``all``; a number: so many of the first one's kind, unleased ones first; or UUIDs or their beginnings,
            separated by commas.

    Raises:
        UsageError: there are no such, or not so many.
    """
    kinds: dict[object, dict[str, Gpu]] = {}
    for uuid in among if asked == ALL or not among or asked.isdigit() else _named(asked, among):
        gpu = among[uuid]
        kinds.setdefault((gpu.name, gpu.capability, gpu.memory_bytes), {})[uuid] = gpu
    found = list(kinds.values())
    if asked.isdigit() and found:
        first = found[0]
        if not 0 < int(asked) <= len(first):
            raise UsageError(f"--gpus {asked}: expected 1 to {len(first)}, the number of GPUs of one kind here")
        busy = [uuid for uuid in first if not gpu_lease.is_free(uuid)]
        return [{uuid: among[uuid] for uuid in [*(u for u in first if u not in busy), *busy][: int(asked)]}]
    return found


def chosen(asked: str, among: Mapping[str, Gpu], say: Callable[[str], None] = lambda _: None) -> dict[str, Gpu]:
    """The GPUs of a run: one kind. Of ``all`` those of the first one's kind; ``say`` is called with the others.

    Raises:
        UsageError: see :func:`by_kind`; or those that are named are of several kinds.
    """
    found = by_kind(asked, among)
    if asked != ALL and len(found) > 1:
        raise UsageError(
            f"--gpus {asked}: expected GPUs of one kind, found {listed(*found)}\n  hint: once for each kind of GPU"
        )
    for other in found[1:]:
        say(f"left out, of another kind than {listed(found[0])}: {listed(other)}; to use: --gpus {','.join(other)}")
    return found[0] if found else {}


def listed(*kinds: Mapping[str, Gpu]) -> str:
    """GPUs by UUID and name."""
    return ", ".join(f"{uuid} ({gpu.name})" for kind in kinds for uuid, gpu in kind.items())


def _named(asked: str, among: Mapping[str, Gpu]) -> list[str]:
    """The UUIDs that the user's words mean."""
    found: list[str] = []
    for word in filter(None, (w.strip() for w in asked.split(","))):
        matching = [uuid for uuid in among if uuid.startswith((word, f"GPU-{word}"))]
        if len(matching) != 1:
            problem = "several" if matching else "none"
            raise UsageError(f"--gpus {word}: expected the UUID of one GPU, found {problem} among {listed(among)}")
        found += [uuid for uuid in matching if uuid not in found]
    if not found:
        raise UsageError(f"--gpus {asked!r}: expected all, a number or UUIDs separated by commas, found none of these")
    return found

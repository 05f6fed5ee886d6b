"""What holds a case back, in a few words made of its counters."""

from __future__ import annotations

from flashcore.analysis.predictions import Readings
from flashcore.hardware import devices
from flashcore.model.catalogue import PHASE_SHARE, STALL_REASONS
from flashcore.model.record import Fact, Record, Subject


def limiter(known: Readings, variant: str | None, shape: str) -> str:
    """What holds a case the most: the largest share of stalls, the phase that takes the most of its warps' time,
    and SMs that the grid leaves idle."""
    if variant is None:
        return ""
    parts = []
    shares = {
        r: share
        for r in STALL_REASONS
        if r not in ("selected", "not_selected")
        and (share := known.of(f"stall_share_{r}", variant, shape).value) is not None
    }
    if shares:
        worst = max(shares, key=lambda r: shares[r])
        parts.append(f"{worst.replace('_', ' ').removesuffix(' stall')} stalls {shares[worst]:.0f} %")
    phases = {p: s for p, f in phase_shares(known.record, Subject(variant, shape=shape)).items() if (s := f.number)}
    if phases:
        longest = max(phases, key=lambda p: phases[p])
        parts.append(f"{longest} {phases[longest]:.0f} % of the warps' time")
    blocks, sms = known.of("blocks", variant, shape).value, _sms(known.record)
    if blocks is not None and sms is not None and blocks < sms:
        parts.append(f"{blocks:.0f} blocks on {sms} SMs")
    return "; ".join(parts)


def phase_shares(record: Record, subject: Subject) -> dict[str, Fact]:
    """Phase → its share of the warps' time, in the order of the sources; empty where they mark none."""
    return {
        f.name.removeprefix(PHASE_SHARE): f
        for f in record.facts.of(subject.variant)
        if f.name.startswith(PHASE_SHARE) and f.subject == subject
    }


def _sms(record: Record) -> int | None:
    device = devices.find(record.gpu)
    return record.environment.gpu_sms or (device.sms if device else None)

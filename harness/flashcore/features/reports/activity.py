"""The survey without ncu: a library in each of the command's processes writes its launches, from CUPTI's records.

``activity.cpp`` is compiled once per machine, and loaded by the CUDA driver. It costs no measurable time; ncu costs
about 80 ms per launch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flashcore.errors import CapabilityError
from flashcore.features.reports.survey import LaunchKey, SurveyedLaunch
from flashcore.machine import toolchain
from flashcore.model.cause import Cause, Template

SOURCE = Path(__file__).with_name("activity.cpp")
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-static-libstdc++", "-static-libgcc")
_HEADERS = ("include", "extras/CUPTI/include")
_LIBRARIES = [f"{name}/libcupti.so*" for name in ("lib64", "lib", "targets/*/lib", "extras/CUPTI/lib64", "lib/cupti*")]
_WHEELS = ("nvidia/cu*", "triton/backends/nvidia")


#: The library cannot be made on this machine.
NO_CUPTI = Template("capture_no_cupti", "CUPTI: {missing}")
#: A process could not record its launches.
CUPTI_FAILED = Template("capture_cupti_failed", "CUPTI: {call}: {reason}")
#: CUPTI had no room for some records, so launches cannot be counted.
RECORDS_DROPPED = Template("capture_records_dropped", "CUPTI dropped {count} records")
NOTHING_RECORDED = Template("capture_nothing_recorded", "CUPTI recorded no launch")
#: Only ncu can apply an option of the user's.
ONLY_NCU = Template("capture_only_ncu", "only ncu applies {option}")


class ActivityRecorder(NamedTuple):
    """The compiled library, and the ``libcupti`` that it loads."""

    library: Path
    cupti: Path

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables with which a command's processes write their launches to ``folder``."""
        return {
            "CUDA_INJECTION64_PATH": str(self.library),
            "FLASHCORE_CUPTI": str(self.cupti),
            "FLASHCORE_ACTIVITY": str(folder.resolve()),
        }


def recorder() -> ActivityRecorder | Cause:
    """The recorder, compiled if this machine has none of this source yet."""
    cupti, headers = _first(_LIBRARIES), include_folders()
    if cupti is None or not headers:
        return NO_CUPTI("expected cupti.h, cuda.h and libcupti.so, found " + ("no headers" if cupti else "no library"))
    try:
        return ActivityRecorder(compiled(headers), cupti)
    except (CapabilityError, OSError) as error:
        return NO_CUPTI(str(error))


def compiled(headers: Sequence[Path]) -> Path:
    """The library of the present source, from the user's cache.

    Raises:
        CapabilityError: there is no compiler, or it rejects the source.
        OSError: the cache cannot be written.
    """
    return toolchain.host_program(
        SOURCE, [*_FLAGS, *(f"-I{folder}" for folder in headers), "-pthread", "-ldl"], "activity.so"
    )


def include_folders() -> list[Path]:
    """The folders of ``cupti.h`` and ``cuda.h``; none where one is missing."""
    headers = [_first([f"{name}/{header}" for name in _HEADERS]) for header in ("cupti.h", "cuda.h")]
    return [header.parent for header in headers if header] if all(headers) else []


def _first(patterns: Sequence[str]) -> Path | None:
    """The first such file of a toolkit or of a wheel (NVIDIA's and Triton's)."""
    roots = [Path("/usr/local/cuda")]
    with contextlib.suppress(CapabilityError):
        roots.insert(0, toolchain.find_nvcc().root)
    for site in toolchain.site_packages():
        roots[-1:-1] = [path for pattern in _WHEELS for path in sorted(site.glob(pattern), reverse=True)]
    return next((path for root in roots for pattern in patterns for path in sorted(root.glob(pattern))), None)


def read(folder: Path) -> tuple[dict[str, list[SurveyedLaunch]], Cause | None]:
    """The launches of each process in the order of their calls, which ncu counts; and why they are not complete.

    A graph's kernels share its call: those are in the order in which they ran. A process that used no CUDA has no file.
    """
    launches: dict[str, list[SurveyedLaunch]] = {}
    cause: Cause | None = None
    for file in sorted(folder.glob("*.jsonl")):
        names: dict[int, str] = {}
        keys: dict[tuple[int, ...], LaunchKey] = {}
        rows: list[tuple[int, int, int, LaunchKey]] = []
        with file.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # cut by the end of its process
                match json.loads(line):
                    case [name, correlation, start, end, *sizes]:
                        key = keys.get((name, *sizes))
                        if key is None:
                            key = LaunchKey(
                                names[name], tuple(sizes[:3]), tuple(sizes[3:6]), tuple(map(str, sizes[6:]))
                            )
                            keys[(name, *sizes)] = key
                        rows.append((correlation, start, end, key))
                    case {"name": name, "id": number}:
                        names[number] = name
                    case {"error": call, "reason": reason}:
                        cause = CUPTI_FAILED(call, reason)
                    case {"dropped": count}:
                        cause = RECORDS_DROPPED(count)
        rows.sort(key=lambda row: row[:2])
        if rows:
            launches[file.stem] = [
                SurveyedLaunch(file.stem, key, (end - start) / 1e3 if end > start else None)
                for _, start, end, key in rows
            ]
    return launches, cause if cause or launches else NOTHING_RECORDED()

"""nvcc's commands for one source and arch, so that its device and its host code are compiled at the same time.

nvcc runs them one after the other. Its device compiler waits for the host's only because of the module's id, a hash
that either can write: an object is made only if both wrote the same.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

#: nvcc's commands by a part of each: of device code, of host code, and of both.
_DEVICE = (r'-o "[^"]+\.cpp1\.ii"\s*$', r'^"\$CICC_PATH/cicc" ', "^ptxas ", "^fatbinary ")
_HOST = (r'-o "[^"]+\.cpp4\.ii"\s*$', r"^cudafe\+\+ ")
_OBJECT = r'\.cudafe1\.cpp" -o '
_ID = r'--module_id_file_name ("[^"]+")'


class Phases(NamedTuple):
    """Shell commands: of host code and of device code, independent of each other, and of the object after both."""

    host: str
    device: str
    object: str

    @staticmethod
    def of(command: Sequence[str], root: str, rules: Sequence[Path]) -> Phases | None:
        """The phases of an nvcc command that keeps its intermediate files; ``None`` if it takes other steps.

        Args:
            root: the folder in which it runs.
            rules: make rules, which the preprocessors of host code and of device code write.
        """
        path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            [*command, "--dryrun"], cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        lines = re.findall(r"(?m)^#\$ (?!-- )(.*)$", done.stderr)
        exports = [
            f"export {m[1]}={shlex.quote(m[2].strip())}" for m in (re.match(r"(\w+)=(.*)", x) for x in lines) if m
        ]
        steps = [[x for x in lines if re.search(part, x)] for part in (*_HOST, *_DEVICE, _OBJECT)]
        if done.returncode or any(len(x) != 1 for x in steps) or len(lines) != len(exports) + len(steps):
            return None
        host_text, cudafe, device_text, cicc, ptxas, fatbinary, gcc = (x[0] for x in steps)
        host_text, device_text = (
            f"{text} -MD -MT variant.o -MF {shlex.quote(str(rule))}"
            for text, rule in zip((host_text, device_text), rules, strict=True)
        )
        cicc = re.sub(_ID, r'--gen_module_id_file --module_id_file_name \1".device"', cicc)
        if not (name := re.search(_ID, cudafe)) or f'{name[1]}".device"' not in cicc:
            return None
        same = f'[ "$(cat {name[1]})" = "$(cat {name[1]}".device")" ]'
        parts = (host_text, cudafe), (device_text, cicc, ptxas, fatbinary), (same, gcc)
        return Phases(*(" && ".join([*exports, *part]) for part in parts))

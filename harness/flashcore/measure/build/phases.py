"""nvcc's commands for one source and arch, so that its device and its host code are compiled at the same time.

nvcc runs them one after the other. Its device compiler waits for the host's only because of the module's id, a hash
that either can write: an object is made only if both wrote the same. The host's compiler waits for the cubin only
because its input includes it as assembly: here it compiles to assembly, into which the cubin is then inserted. The
assembly is kept: after an edit of device code alone, the next build takes it over.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

#: nvcc's commands by a part of each: of host code, of device code, and of both.
_HOST = (r'-o "[^"]+\.cpp4\.ii"\s*$', r"^cudafe\+\+ ")
_DEVICE = (r'-o "[^"]+\.cpp1\.ii"\s*$', r'^"\$CICC_PATH/cicc" ', "^ptxas ", "^fatbinary ")
_OBJECT = r' -c (-x c\+\+ .*"([^"]+)\.cudafe1\.cpp") -o ("[^"]+")'
_ID = r'--module_id_file_name ("[^"]+")'
#: Shell: the words of a cubin in fatbinary's file, and the rest of that file, which is the same for every cubin.
_WORDS = r"""sed -n 's/^"\(\.quad .*\)\\n"$/\1/p'"""
_REST = r"""sed '/^"\.quad /d; s/fatbinData\[[0-9]*\]/fatbinData[]/'"""
#: Host code, and flags of its compiler, by which assembly depends on the numbers of lines or on empty ones.
_READS_LINES, _NEEDS_LINES = '__builtin_(LINE|source_location)|R[\\"]', r" -g| --coverage| -f(sanitize|profile)"
#: sed: a kernel's length in lines leaves no trace in its host stub.
_SAME = r"s/\({__device_stub[^\n]*;\)[ \n]*}/\1}/g; s/\n\n*/\n/g"
#: Stands for the folder that nvcc writes to, which is another in each build.
_FOLDER = "/flashcore-folder"


class Phases(NamedTuple):
    """Shell commands: of host and of device code; of the cubin, after device code; of the host's assembly, after both;
    of the object, after all."""

    host: str
    device: str
    cubin: str
    assembly: str
    object: str

    @staticmethod
    def of(command: Sequence[str], root: str, folder: str, rules: Sequence[Path], kept: Path) -> Phases | None:
        """The phases of an nvcc command that keeps its intermediate files; ``None`` if it takes other steps.

        Args:
            root: the folder in which it runs.
            folder: the folder to which it writes.
            rules: make rules, which the preprocessors of host code and of device code write.
            kept: the file of the last build's assembly, taken over if its input is the same but for the module's id,
                and if nobody has edited it.
        """
        general = tuple(word.replace(folder, _FOLDER) for word in command)
        lines = [x.replace(_FOLDER, folder) for x in _steps(general, root, os.stat(command[0]).st_mtime_ns)]
        exports = [
            f"export {m[1]}={shlex.quote(m[2].strip())}" for m in (re.match(r"(\w+)=(.*)", x) for x in lines) if m
        ]
        steps = [[x for x in lines if re.search(part, x)] for part in (*_HOST, *_DEVICE, _OBJECT)]
        if any(len(x) != 1 for x in steps) or len(lines) != len(exports) + len(steps):
            return None
        host_text, cudafe, device_text, cicc, ptxas, fatbinary, gcc = (x[0] for x in steps)
        host_text, device_text = (
            f"{text} -MD -MT variant.o -MF {shlex.quote(str(rule))}"
            for text, rule in zip((host_text, device_text), rules, strict=True)
        )
        cicc = re.sub(_ID, r'--gen_module_id_file --module_id_file_name \1".device"', cicc)
        name, files = re.search(_ID, cudafe), re.search(_OBJECT, gcc)
        if not (name and files) or f'{name[1]}".device"' not in cicc:
            return None
        same, stem = f'[ "$(cat {name[1]})" = "$(cat {name[1]}".device")" ]', files[2]
        embedded, words = f'"{stem}.fatbin.c"', f'"{stem}.words"'
        # Any PTX will do: without its words, fatbinary's file is the same.
        empty = fatbinary.replace("kind=elf", "kind=ptx").replace(f"{stem}.cubin", f"{stem}.ptx")
        empty = empty.replace(f"{stem}.fatbin", f"{stem}.empty")
        real = fatbinary.replace(embedded, f'"{stem}.real.c"')
        file = shlex.quote(str(kept))
        preprocess = re.sub(_OBJECT, rf' -E -P \1 -o "{stem}.ii"', gcc)
        compile_ = re.sub(_OBJECT, rf' -S \1 -o "{stem}.s"', gcc)
        assembly: tuple[str, ...] = (
            f"id=$(cut -c 1-10 {name[1]}) && {preprocess}",
            f"input=$({{ {gcc.split()[0]} --version; echo {shlex.quote(compile_.replace(folder, ''))}; "
            f'sed -z "{_SAME}; s/$id/_module_/g" "{stem}.ii"; }} | sha256sum | cut -c 1-64)',
            f'kept=$([ -O {file} ] && [ "$(sed 1d {file} | sha256sum)" = "$(sed -n "1s/^#$input //p" {file})" ] '
            f'&& ! grep -Eq "{_READS_LINES}" "{stem}.ii" && echo intact || true)',
            f'if [ "$kept" ]; then sed "1d; s/_module_/$id/g" {file} > "{stem}.s"; '
            f'else {compile_} > "{stem}.output" 2>&1; code=$?; cat "{stem}.output"; [ $code = 0 ] && '
            f'{{ [ -s "{stem}.output" ] || {{ sed "s/$id/_module_/g" "{stem}.s" > "{stem}.t" && '
            f'{{ echo "#$input $(sha256sum < "{stem}.t")"; cat "{stem}.t"; }} > "{stem}.kept" && '
            f'chmod 644 "{stem}.kept" && mv "{stem}.kept" {file}; }}; }}; fi',
        )
        if re.search(_NEEDS_LINES, gcc):
            assembly = (compile_,)
        parts = (
            (host_text, cudafe),
            (device_text, cicc),
            (ptxas, real, f'{_WORDS} "{stem}.real.c" > {words}'),
            (same, empty, f'{_REST} "{stem}.empty.c" > {embedded}', *assembly),
            (
                f'{_REST} "{stem}.real.c" | cmp -s - {embedded}',
                f'sed "/^fatbinData:/r "{words} "{stem}.s" > "{stem}.whole.s"',
                f'{gcc.split()[0]} -c "{stem}.whole.s" -o {files[3]}',
            ),
        )
        return Phases(*(" && ".join([*exports, *part]) for part in parts))


@functools.lru_cache(64)
def _steps(command: Sequence[str], root: str, _: int) -> list[str]:
    """The variables and commands of nvcc's dry run; empty if it fails. The last argument is the time of nvcc's file."""
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        [*command, "--dryrun"], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    return [] if done.returncode else re.findall(r"(?m)^#\$ (?!-- )(.*)$", done.stderr)

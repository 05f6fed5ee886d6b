"""Recorded sessions of the commands: exit codes, output, and the files that commands write.

``data/golden/sessions.txt`` has a transcript below each line ``=== NAME``, of a session in a copy of the folder
``data/golden/work``, with the toy suite and the published runs. Its lines that begin with ``$`` are run again, and must
read as recorded::

    FLASHCORE_GOLDEN=write pytest tests/test_golden.py

records them again; so for a new session, write only its name and those lines. ``# needs`` names a part of the machine
as ``flashcore doctor`` does, and how its detail begins. The packed runs are input and stay as they are, since records
of earlier versions must remain readable.
"""

from __future__ import annotations

import fcntl
import hashlib
import html
import json
import lzma
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, TESTS, TOY, flashcore
from tests.recorded import RECORDED

GOLDEN = TESTS / "data" / "golden"
SESSIONS = GOLDEN / "sessions.txt"
STUDIES = ROOT / "benchmarks" / "results" / "search"
#: No GPU, and nothing of the terminal or the CI service in which the tests run.
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "400", "GITHUB_ACTIONS": "", "GITHUB_STEP_SUMMARY": ""}
#: What differs between runs, machines and versions of Python → what stands for it. The packed runs are of January 2026.
PLACEHOLDERS = {
    r"-I\S*-binding-[0-9a-f]{16}": "-I<problem>",
    r"\b(?!202601)20\d{6}T\d{6}Z-[0-9a-f]{4}\b": "<run>",
    r"\[ *[\d.]+ s\]|(?<=\bin )[\d.]+ s\b": "<duration>",
    r"(?<=flashcore )\d+\.\d+\.\d+\w*": "<version>",
    r'(?<=ersion": ")(?!2\.1\.0")\d+\.\d+\.\d+\w*': "<version>",  # but SARIF's
    r"(?<=\(choose from )[^)]*": "<choices>",
}
#: The same of one session alone. What ``doctor`` says is of the machine: only its structure is frozen. How help is laid
#: out is up to the version of Python.
OF_A_SESSION = {
    "audit": {r"(?m)(?<=, )[\d.]+ s$": "<duration>"},
    "doctor": {
        r"(?m)^(?:ok|missing) +([\w-]+(?: compiler)?).*": r"<state> \1",
        r"(?m)^  hint: .*\n": "",
        r"(?<=this machine can: ).*": "<text>",
        r'("(?:detail|mend|found)": )("[^"]*"|\w+)': r"\1<text>",
        r'("can": )\[[^\]]*\]': r"\1<text>",
        r"(?m)^exit \d": "exit <code>",
    },
    "help": {r"-o \w+, ": "-o, ", r"(?<=\S)(?:\n {10,}| {2,})(?=\S)": "  "},
}
#: The attributes that place charts, sort tables and explain cells; interactive charts are drawn from data.
DRAWN = "title|d|x|y|cx|cy|r|width|height|points|transform|style|data-sort|href|colspan"
MOST_CHARACTERS = 20_000  # of one output; of a longer one, the beginning and a checksum


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The parts of this machine that ``flashcore doctor`` finds, and their details."""
    done = flashcore("doctor", "--format", "json", cwd=tmp_path_factory.mktemp("doctor"), env=SETTINGS)
    return {part["name"]: part["detail"] for part in json.loads(done.stdout)["parts"] if part["found"]}


def sessions(text: str) -> dict[str, str]:
    """The transcripts by name."""
    _, *parts = re.split(r"(?m)^=== (\w+)\n", text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


RECORDINGS = sessions(SESSIONS.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "session",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("published", "reports"))) for name in RECORDINGS],
)
def test_a_session_reads_as_recorded(
    session: str, parts: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recorded = RECORDINGS[session]
    needs = re.findall(r"(?m)^# needs ([\w-]+) ?(.*)$", recorded)
    for name, detail in needs:
        if name not in parts or not parts[name].startswith(detail):
            pytest.skip(f"tool: the session needs {name} {detail}")
    folder = shutil.copytree(GOLDEN / "work", tmp_path / "work")
    shutil.copytree(TOY, folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "published").symlink_to(ROOT / "profiles")
    if session == "pack":
        zipfile.ZipFile(next(folder.glob("published/*-0fac.run.zip"))).extractall(folder / "recorded")
    for name, target in (("data", TESTS / "data"), ("examples", ROOT / "examples")):
        (folder / name).symlink_to(target)
    for file in STUDIES.glob("*.xz"):
        (folder / file.stem).write_bytes(lzma.decompress(file.read_bytes()))
    for file in (RECORDED / "reports").iterdir():
        shutil.copy(file, folder)
    if "nvcc" in dict(needs):
        (folder / "build").symlink_to(request.getfixturevalue("toy").folder)
    present = "".join(f"# needs {name} {detail}".rstrip() + "\n" for name, detail in needs)
    present += "\n".join(f"$ {line}\n{output(line, folder)}" for line in re.findall(r"(?m)^\$ (.*)$", recorded))
    for pattern, placeholder in OF_A_SESSION.get(session, {}).items():
        present = re.sub(pattern, placeholder, present)
    if os.environ.get("FLASHCORE_GOLDEN") == "write":
        with SESSIONS.open("r+", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # several workers may record
            texts = sessions(stream.read()) | {session: present}
            stream.seek(0)
            stream.write("".join(f"=== {name}\n{text}" for name, text in texts.items()))
            stream.truncate()
    else:
        assert present == recorded


def output(line: str, folder: Path) -> str:
    """The output of a session's line: a command's output and exit code, the contents of files (``cat``) or their sizes
    and checksums (``sum``)."""
    first, *rest = line.split()
    results = {word: sorted(str(p.relative_to(folder)) for p in folder.glob(word)) for word in rest if "*" in word}
    words = [name for word in rest for name in results.get(word, [word])]
    if first == "sum":
        texts = ((name, brief(contents(folder / name), folder).encode()) for name in words)
        return "".join(f"{name} {len(text)} {hashlib.sha256(text).hexdigest()[:16]}\n" for name, text in texts)
    if first == "cat":
        titles = {name: f"--- {name}\n" if len(words) > 1 else "" for name in words}
        return "".join(title + brief(contents(folder / name), folder) for name, title in titles.items())
    done = flashcore(*words, cwd=folder, env=SETTINGS)
    errors = f"standard error:\n{brief(done.stderr, folder)}" if done.stderr else ""
    return f"{brief(done.stdout, folder)}{errors}exit {done.returncode}\n"


def contents(path: Path) -> str:
    """The text of a file; of a page what is visible, with a checksum of what its charts and tooltips show; of a packed
    run its files' names."""
    if path.suffix == ".zip":
        return "\n".join(zipfile.ZipFile(path).namelist())
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        shown = re.findall(rf' (?:{DRAWN})="([^"]*)"|<script type="application/json"[^>]*>(.*?)</script>', text)
        checksum = hashlib.sha256("\n".join(map("".join, shown)).encode()).hexdigest()
        text = html.unescape(re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>", "\n", text))
        text = re.sub(r"\s*\n\s*", "\n", text).strip()
        return f"{text}\n… {len(shown)} attributes and data, SHA-256 {checksum}\n"
    return text


def brief(text: str, folder: Path) -> str:
    """The text with placeholders, in full lines; small objects of JSON in one each; of a long text the beginning."""
    if text.startswith("{"):
        parsed = json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False)
        small = r"(?<!^)\{(?:[^{}]|\{[^{}]*\})*\}"
        text = re.sub(small, lambda results: re.sub(r"\n *", " ", results[0]), parsed)
    text = text.replace(str(folder), "<folder>").replace(str(ROOT), "<root>")
    for pattern, placeholder in PLACEHOLDERS.items():
        text = re.sub(pattern, placeholder, text)
    if len(text) > MOST_CHARACTERS:
        checksum = hashlib.sha256(text.encode()).hexdigest()
        head = "\n".join(line[:200] for line in text.splitlines()[:60])
        text = f"{head}\n… {len(text)} characters in all, SHA-256 {checksum}"
    return text and text.rstrip("\n") + "\n"

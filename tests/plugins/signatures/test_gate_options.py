"""Signatures of runs, with the real ssh-keygen: who signed is told, and only a trusted key over these files counts."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.measure.settings import Settings
from flashcore.pipeline.recording import present
from flashcore.plugins.signatures.command import SIGNATURE
from flashcore.records import packed as pack
from flashcore.records import store
from tests import factory
from tests.conftest import TOY, Built
from tests.plugins.base.test_gate_options import git

RUN = "20260102T030405Z-0001"
pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="tool: ssh-keygen")


class Repository:
    """A committed suite that trusts alice, and a run that the gate joins."""

    def __init__(self, root: Path, build: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.suite, self.build, self._capsys = root, root / "kernels" / "toy", build, capsys
        shutil.copytree(TOY, self.suite, ignore=shutil.ignore_patterns("__pycache__"))
        self.trust("alice")
        git(root, "init", "-q", "-b", "main")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "base")
        made = present(Settings(str(self.suite), profiles=str(root), build=str(build)), lambda _: None)
        store.write(factory.profiled(made, "plain", "tail", RUN), folder := store.begin(root, RUN))
        self.run = store.complete(folder)

    def key(self, name: str) -> Path:
        key = self.root.parent / name
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        return key

    def trust(self, *names: str, options: str = "") -> None:
        lines = (f"{name}@example.org {options} {self.key(name).with_suffix('.pub').read_text()}" for name in names)
        (self.suite / store.SIGNERS).write_text("".join(lines))

    def sign(self, name: str = "alice") -> None:
        assert main(["sign", RUN, "--profiles", str(self.root), "--key", str(self.key(name))]) == 0
        assert f"{RUN}/SHA256SUMS.sig: signed with" in self._capsys.readouterr().out

    def gate(self, *words: str) -> str:
        """The gate's note on the run's signature."""
        where = ["--suite", str(self.suite), "--build-dir", str(self.build), "--profiles", str(self.root)]
        assert main(["gate", *where, "--format", "json", "-q", *words]) == 0
        notes = json.loads(self._capsys.readouterr().out)["notes"]
        intact, *signed = [note for note in notes if note.startswith(f"run {RUN}: ")]
        assert intact == f"run {RUN}: intact" and len(signed) < 2
        return "".join(signed).removeprefix(f"run {RUN}: ")

    def refusal(self, *words: str) -> str:
        """The value that the error of ``--require-signed`` names as found."""
        where = ["--suite", str(self.suite), "--build-dir", str(self.build), "--profiles", str(self.root)]
        assert main(["gate", *where, "-q", "--require-signed", *words]) == Exit.USAGE
        error = self._capsys.readouterr().err
        expected = f"run {RUN}: expected a signature by a key in allowed_signers of "
        assert expected in error and "hint: flashcore sign RUN" in error
        return error.partition(expected)[2].partition("\n")[0]


@pytest.fixture
def repository(tmp_path: Path, toy: Built, capsys: pytest.CaptureFixture[str]) -> Repository:
    return Repository(tmp_path / "theirs", toy.folder, capsys)


WORKING = "the working tree, which a change may edit"
ALICE = "signed by alice@example.org (allowed_signers of {})"
UNTRUSTED = r"{}, found signed with SHA256:\S+, which is not trusted"


def test_the_gate_says_who_signed(repository: Repository) -> None:
    assert repository.gate() == ""
    assert repository.refusal() == f"{WORKING}, found none"
    repository.sign()
    assert repository.gate("--require-signed") == ALICE.format(WORKING)
    assert repository.gate("--base", "HEAD", "--require-signed") == ALICE.format("HEAD")
    packed = repository.root / "records" / f"{RUN}.run.zip"
    packed.parent.mkdir()
    packed.write_bytes(pack.packed(repository.run))
    shutil.rmtree(repository.run)
    assert repository.gate("--require-signed", "--records", str(packed)) == ALICE.format(WORKING)


def test_a_change_cannot_trust_its_own_key(repository: Repository) -> None:
    repository.sign("mallory")
    assert re.fullmatch(UNTRUSTED.format(WORKING), repository.refusal())
    assert "which is not trusted (" in repository.gate()
    repository.trust("alice", "mallory")
    assert repository.gate("--require-signed").startswith("signed by mallory@example.org")
    assert re.fullmatch(UNTRUSTED.format("HEAD"), repository.refusal("--base", "HEAD", "--allow", "signer:*"))


def test_a_signature_of_other_bytes_counts_for_nothing(repository: Repository) -> None:
    repository.sign()
    (repository.run / store.SAMPLES).write_bytes(gzip.compress(b"{ }"))
    store.seal(repository.run)
    signature = (repository.run / SIGNATURE).read_bytes()
    for data in (signature, b"", b"no signature"):
        (repository.run / SIGNATURE).write_bytes(data)
        assert repository.gate() == f"a signature of other files (allowed_signers of {WORKING})"
        assert repository.refusal() == f"{WORKING}, found a signature of other files"


@pytest.mark.parametrize("options", ['namespaces="git"', 'valid-before="20200101"'])
def test_a_key_that_is_trusted_for_something_else_is_not_trusted(repository: Repository, options: str) -> None:
    repository.sign()
    repository.trust("alice", options=options)
    assert "which is not trusted (" in repository.gate()


def test_a_run_does_not_name_its_signers(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header = json.loads((repository.run / store.HEADER).read_bytes())
    header["suite"]["root"] = str(repository.run)
    (repository.run / store.HEADER).write_text(json.dumps(header))
    store.seal(repository.run)
    repository.sign("mallory")
    repository.trust("mallory")
    shutil.move(repository.suite / store.SIGNERS, repository.run)
    monkeypatch.chdir(repository.root.parent)
    main(["gate", str(repository.run)])
    assert "which is not trusted (" in capsys.readouterr().out


def test_what_cannot_be_signed_or_checked_is_said(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sign", RUN, "--profiles", str(repository.root), "--key"]
    assert main([*words, str(repository.suite / "suite.toml")]) == Exit.USAGE
    assert "suite.toml: expected an SSH key that can sign, found: " in capsys.readouterr().err
    repository.sign()
    monkeypatch.setenv("PATH", "")
    for command in ([*words, str(repository.key("alice"))], ["gate", str(repository.run)]):
        assert main(command) == Exit.INCAPABLE
        assert "no ssh-keygen found" in (err := capsys.readouterr().err) and "apt-get install openssh-client" in err

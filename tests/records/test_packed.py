"""Packed runs: read back whole, the same bytes each time; what is torn, foreign or hostile is refused with a reason."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError, RecordError, UsageError
from flashcore.records import lookup, store
from flashcore.records import packed as pack
from tests.support.stored import change_header, full, whole

ID = "20260102T030405Z-0001"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run, with a tool's log in it."""
    folder = store.begin(tmp_path / "profiles", ID)
    store.write(dataclasses.replace(full(), id=ID), folder)
    (folder / "check").mkdir()
    (folder / "check" / "journal-001.jsonl.gz").write_bytes(gzip.compress(b"ptxas info", mtime=0))
    return store.complete(folder)


@pytest.fixture
def packed(run: Path, tmp_path: Path) -> Path:
    """The run packed, in a folder of its own."""
    file = tmp_path / "records" / f"gpu{lookup.PACKED}"
    file.parent.mkdir()
    file.write_bytes(pack.packed(run))
    return file


def test_a_packed_run_is_the_run(run: Path, packed: Path) -> None:
    result = whole(pack.opened(packed))  # type: ignore[arg-type]
    expected = whole(run)
    assert list(result.facts) == list(expected.facts)
    assert list(result.listings) == list(expected.listings) and result.listings
    for name in ("id", "suite", "keys", "samples", "outcomes", "environment"):
        assert getattr(result, name) == getattr(expected, name)


def test_forked_processes_read_a_packed_run_at_the_same_time(packed: Path) -> None:
    opened = pack.opened(packed)
    files = [opened / name for name in (store.FACTS, store.HEADER)]
    expected = [file.read_bytes() for file in files]
    children = []
    for _ in range(4):
        if not (child := os.fork()):
            try:
                same = all([file.read_bytes() for file in files] == expected for _ in range(300))
            except Exception:
                same = False
            os._exit(0 if same else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


def test_a_run_gives_the_same_bytes_wherever_it_lies(run: Path, packed: Path, tmp_path: Path) -> None:
    moved = run.rename(tmp_path / "elsewhere")
    for path in moved.rglob("*"):
        path.touch()
    assert pack.packed(moved) == packed.read_bytes()


def test_unzipped_by_hand_it_is_the_run_folder_again(run: Path, packed: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(packed).extractall(tmp_path / "by_hand")
    by_hand = tmp_path / "by_hand" / ID
    assert {p.relative_to(by_hand) for p in by_hand.rglob("*")} == {p.relative_to(run) for p in run.rglob("*")}


# --- where it is looked up ----------------------------------------------------------------------


def test_a_place_is_a_folder_of_runs_and_packed_ones_or_one_of_them(run: Path, packed: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for place in (packed, packed.parent, run, run.parent):
        assert [r.name for r in lookup.all_runs([nowhere, place])] == [ID]
        assert store.read(lookup.find([nowhere, place], ID[:10])).id == ID
    assert store.read(lookup.find(nowhere, str(packed))).id == ID
    found = next(lookup.measured_runs([nowhere, packed], "attention"), None)
    assert found is not None and found.id == ID
    assert not [*lookup.measured_runs([nowhere, packed], "another")]


def test_a_file_of_another_name_is_no_run(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be called as a git revision is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main").write_bytes(packed.read_bytes())
    with pytest.raises(UsageError, match="found none"):
        lookup.find(tmp_path / "nowhere", "main")
    assert [r.name for r in lookup.runs_at(tmp_path / "main")] == [ID], "--records takes any name"


def test_of_two_runs_with_one_id_that_among_the_recorded_ones_counts(run: Path, packed: Path) -> None:
    (result,) = lookup.all_runs([run.parent, packed])
    assert result == run


@pytest.mark.parametrize("name", ["gone", "empty", "other.zip"])
def test_a_place_without_a_run_is_wrong_usage(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.zip").mkdir()
    with pytest.raises(UsageError, match=r"expected a run, a packed run \(\*\.run\.zip\) or a folder of them"):
        lookup.runs_at(tmp_path / name)


# --- what is not packed -------------------------------------------------------------------------


def test_a_damaged_run_a_link_and_too_much_are_not_packed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "secret.log").symlink_to(tmp_path / "secret")
    with pytest.raises(RecordError, match=r"expected plain files in a run, found 'secret\.log'"):
        pack.packed(run)
    (run / "secret.log").unlink()
    monkeypatch.setattr(pack, "MOST", 100)
    with pytest.raises(RecordError, match="MiB"):
        pack.packed(run)
    monkeypatch.undo()
    (run / store.FACTS).write_bytes(b"torn")
    with pytest.raises(RecordError, match=f"found altered: {store.FACTS}"):
        pack.packed(run)
    store.seal(run)
    with pytest.raises(RecordError, match="cannot be read"):
        pack.packed(run)


# --- what is refused ----------------------------------------------------------------------------


def rewritten(packed: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The packed run with other files in it."""
    with zipfile.ZipFile(packed) as archive:
        files = {e.filename: archive.read(e) for e in archive.infolist()}
    change(files)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed


@pytest.mark.parametrize("name", [store.HEADER, store.FACTS, store.SAMPLES])
def test_a_file_that_was_changed_or_taken_out_is_refused(packed: Path, name: str) -> None:
    content = packed.read_bytes()
    rewritten(packed, lambda files: files.update({f"{ID}/{name}": files[f"{ID}/{name}"] + b"\n"}))
    with pytest.raises(RecordError, match=f"found altered: {name}|{name}: cannot be read"):
        store.read(pack.opened(packed))
    packed.write_bytes(content)
    rewritten(packed, lambda files: files.__delitem__(f"{ID}/{name}"))
    with pytest.raises(RecordError, match=name):
        store.read(pack.opened(packed))


def test_another_zip_is_refused(packed: Path) -> None:
    for change in (lambda files: files.update({"README": b""}), lambda files: files.clear()):
        with pytest.raises(
            RecordError, match=r"expected a run that `flashcore runs pack` wrote, found .*(no <run>|no file)"
        ):
            pack.opened(rewritten(packed, change))


@pytest.mark.parametrize(
    "name", ["../../evil.py", "/etc/evil", "..", "a/../../b", ".hidden", "a\\b", "-rf", "a//b", ""]
)
def test_a_name_that_leads_elsewhere_is_refused(packed: Path, name: str) -> None:
    def add(files: dict[str, bytes]) -> None:
        files[f"{ID}/{name}"] = b"evil"

    with pytest.raises(RecordError, match="no file of a run"):
        pack.opened(rewritten(packed, add))


@pytest.mark.parametrize("other", ["..", "../20260102T030405Z-0001", "/etc", "profiles", "20260102T030405Z-0001/x"])
def test_an_id_that_leads_elsewhere_is_refused(packed: Path, other: str) -> None:
    def move(files: dict[str, bytes]) -> None:
        moved = {name.replace(ID, other, 1): data.replace(ID.encode(), other.encode()) for name, data in files.items()}
        files.clear()
        files.update(moved)

    with pytest.raises(RecordError, match=r"no <run>/run\.json|no file of a run"):
        pack.opened(rewritten(packed, move))


def test_a_link_in_it_is_its_text_and_no_way_out(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with zipfile.ZipFile(packed) as archive:
        files = {e.filename: archive.read(e) for e in archive.infolist()}
    target = str(tmp_path / "secret").encode()
    name = f"{ID}/{store.SAMPLES}"
    rewritten(packed, lambda members: members.update({name: target}))
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(tmp_path / "linked", "w") as linked:
        for entry in archive.infolist():
            data = archive.read(entry)
            if entry.filename == name:
                entry.external_attr = 0o120777 << 16
            linked.writestr(entry, data)
    assert files[name] != target
    with pytest.raises(RecordError, match="cannot be read") as refused:
        store.read(pack.opened(tmp_path / "linked"))
    assert "secret" not in str(refused.value).replace(str(tmp_path / "secret"), "")


def test_huge_files_are_refused_before_they_are_read(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_file = packed.read_bytes()
    monkeypatch.setattr(pack, "MOST", 1 << 20)
    with pytest.raises(RecordError, match="MiB in it; expected at most 1"):
        pack.opened(rewritten(packed, lambda files: files.update({f"{ID}/zeros": b"\0" * (6 << 20)})))
    packed.write_bytes(whole_file)
    monkeypatch.setattr(store, "_MOST_UNPACKED", 1 << 16)
    bomb = gzip.compress(b" " * (1 << 20))
    monkeypatch.setattr(store, "verify", lambda _: True)
    rewritten(packed, lambda files: files.update({f"{ID}/{store.FACTS}": bomb}))
    with pytest.raises(
        RecordError, match=r"facts\.json\.gz: cannot be read: expected at most 0 MiB unpacked, found more"
    ):
        store.read(pack.opened(packed))


def test_a_pointer_of_git_lfs_says_what_brings_the_run(packed: Path) -> None:
    packed.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(RecordError, match="hint: git lfs pull"):
        pack.opened(packed)


def test_cut_short_or_with_any_byte_changed_it_is_refused_or_the_same(packed: Path) -> None:
    """A flipped bit of a zip's unused fields changes nothing; all else is seen."""
    data = packed.read_bytes()
    expected = list(whole(pack.opened(packed)).facts)  # type: ignore[arg-type]
    chance = random.Random(0)
    for cut in sorted(chance.sample(range(len(data)), 60)):
        packed.write_bytes(data[:cut])
        with pytest.raises(RecordError, match="flashcore runs pack"):
            pack.opened(packed)
    refused = 0
    for at in chance.sample(range(len(data)), 400):
        packed.write_bytes(data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])
        try:
            result = store.read(pack.opened(packed))
        except FlashcoreError:
            refused += 1
        else:
            assert list(result.facts) == expected
    assert refused > 300


def test_a_record_inside_is_read_as_strictly_as_any(run: Path, tmp_path: Path) -> None:
    file = tmp_path / f"odd{lookup.PACKED}"
    file.write_bytes(pack.packed(run))
    with zipfile.ZipFile(file) as archive:
        header = json.loads(archive.read(f"{ID}/{store.HEADER}"))
    header["id"] = "../../evil"
    text = json.dumps(header).encode()
    rewritten(file, lambda files: files.update({f"{ID}/{store.HEADER}": text}))
    with pytest.raises(RecordError, match="id: expected an id such as"):
        store.read(pack.opened(file))
    change_header(run, suite={"name": "attention"})
    with pytest.raises(RecordError, match="expected a run record"):
        pack.packed(run)


def test_published_runs_are_packed_and_a_damaged_one_stops_nothing(
    run: Path, packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiles = packed.parent
    assert lookup.find(profiles, ID[:12]).name == ID and lookup.find(profiles, None).name == ID
    assert store.read(lookup.find(profiles, ID)).id == ID
    run.rename(profiles / ID)
    assert lookup.all_runs(profiles) == [profiles / ID], "a run of both kinds is listed once, by its folder"
    (profiles / f"cut{lookup.PACKED}").write_bytes(packed.read_bytes()[:-40])
    assert [result.name for result in lookup.all_runs(profiles)] == [ID]
    assert f"skipped run cut{lookup.PACKED}: " in capsys.readouterr().err

"""Causes: each is written and read again, has a text, and one of a missing plugin survives."""

import dataclasses

import pytest

from flashcore.model import cause_text, causes

VALUES = {
    "str": "a",
    "float": 1.5,
    "int": 2,
    "bool": True,
    "bool | None": None,
    "tuple[str, ...]": ("a",),
    "Literal['runs', 'gpus', 'rounds', 'samples']": "gpus",
    "Cause": causes.Hang(2.0, "a"),
    "Cause | None": None,
    "Detail | None": causes.WrongElements("out", 1, 9, (2, 3), "1", "nan", "one_element"),
    "tuple[int, ...]": (2, 3),
    "tuple[Cause, ...]": (causes.Crash(-9), causes.Hang(1.0)),
    "tuple[tuple[str, str, str], ...]": (("device", "13.0", "13.1"),),
}


@pytest.mark.parametrize("kind", causes.DETAILS.values(), ids=lambda kind: kind.code)
def test_a_cause_is_read_as_it_was_written(kind: type[causes.Detail]) -> None:
    detail = kind(**{f.name: VALUES[str(f.type)] for f in dataclasses.fields(kind)})  # type: ignore[arg-type]
    if kind is not causes.Unknown:
        assert causes.from_json(causes.as_json(detail)) == detail
    assert cause_text.text(detail) or kind is causes.SourceLine


#: Texts that are shown elsewhere, or only where another is not given.
UNTOLD = {("CompileFailed", "file"), ("UnsupportedArch", "archs"), ("Renamed", "kernels"), ("SourceLine", "file"),
          ("CodeChanged", "part")}  # fmt: skip


@pytest.mark.parametrize("kind", [k for k in causes.DETAILS.values() if k is not causes.Unknown], ids=lambda k: k.code)
def test_a_cause_is_told_with_its_texts(kind: type[causes.Detail]) -> None:
    kinds = {f.name: str(f.type) for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    texts: dict[str, object] = {name: f"<{name}>" for name, of in kinds.items() if of == "str"}
    texts |= {name: (f"<{name}>",) for name, of in kinds.items() if of == "tuple[str, ...]"}
    listed = cause_text.text(kind(**{name: VALUES[of] for name, of in kinds.items()} | texts))
    assert {name for name in texts if f"<{name}>" not in listed} == {n for k, n in UNTOLD if k == kind.__name__}


def test_a_cause_of_a_missing_plugin_is_kept() -> None:
    written = {"cause": "of_a_plugin", "detail": [1]}
    assert causes.as_json(causes.from_json(written)) == written


WRONG = [None, "hang", {}, {"cause": 3}, {"cause": "hang", "seconds": "long"},
         {"cause": "failed_before", "because": {"cause": "caches", "kept": True}}]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_another_form_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError):
        causes.from_json(wrong)


def test_a_code_is_one_class() -> None:
    with pytest.raises(ValueError, match="hang"):
        type("Other", (causes.Cause,), {"code": "hang", "__module__": __name__})

"""Causes: each is written and read again, has a text, and one of a missing plugin survives."""

import dataclasses
import importlib
import pkgutil
from typing import Any

import pytest

from flashcore import features
from flashcore.model import causes, plugin
from flashcore.model.cause import CODES, Cause, Detail, Template, Unknown, as_json, cause_text, from_json

VALUES = {
    "str": "a",
    "float": 1.5,
    "int": 2,
    "bool": True,
    "bool | None": None,
    "tuple[str, ...]": ("a",),
    "Cause": causes.Hang(2.0, "a"),
    "Detail | None": causes.WrongElements("out", 1, 9, (2, 3), "1", "nan", "one_element"),
    "tuple[int, ...]": (2, 3),
    "tuple[Cause, ...]": (causes.CRASH(-9), causes.Hang(1.0)),
    "tuple[tuple[str, str, str], ...]": (("device", "13.0", "13.1"),),
}
COMPILERS = VALUES["tuple[tuple[str, str, str], ...]"]
#: The data of templates that is no text: by its name.
NUMBERS: dict[str, Any] = {
    **dict.fromkeys(("because",), causes.Hang(2.0, "a")),
    **dict.fromkeys(("names", "lines", "archs", "rows", "files", "kernels"), ("a", "b")),
    **dict.fromkeys(("exit_code", "errors", "warnings", "bytes", "stack_bytes"), 3),
    **dict.fromkeys(("seconds", "by_counter", "by_sensor", "us", "empty_us", "difference_us", "events_us"), 1.5),
    **dict.fromkeys(("new_us", "known_us", "floor_us", "celsius"), 1.5),
    "compilers": COMPILERS,
}


def made(kind: type[Detail] | Template) -> Detail:
    """One with a value for each name of its data."""
    if isinstance(kind, Template):
        return kind(**{name: NUMBERS.get(name, f"<{name}>") for name in kind.fields})
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{f.name: VALUES[str(f.type)] for f in fields})


@pytest.mark.parametrize("code", CODES)
def test_a_cause_is_read_as_it_was_written(code: str) -> None:
    detail = made(CODES[code])
    if not isinstance(detail, Unknown):
        assert from_json(as_json(detail)) == detail and detail.code == code
    assert cause_text(detail) or isinstance(detail, causes.SourceLine)


#: Texts that are shown elsewhere, or only where another is not given.
UNTOLD = {("compile_failed", "file"), ("source_line", "file"), ("code_changed", "part"),
          ("unsupported_arch", "archs"), ("no_plan", "profiled")}  # fmt: skip


@pytest.mark.parametrize("code", [code for code in CODES if code != Unknown.code])
def test_a_cause_is_told_with_its_texts(code: str) -> None:
    detail = made(CODES[code])
    texts = {name: f"<{name}>" for name, value in detail.data.items() if value == "a" or value == f"<{name}>"}
    texts |= {name: (f"<{name}>",) for name, value in detail.data.items() if value in (("a",), ("a", "b"))}  # type: ignore[misc]
    listed = CODES[code](**{**detail.data, **texts})
    assert {name for name in texts if f"<{name}>" not in cause_text(listed)} == {n for c, n in UNTOLD if c == code}


@pytest.mark.parametrize(
    ("cause", "shown"),
    [
        (causes.NOT_BUILT(), "not built"),
        (causes.NOT_BUILT("sm_80"), "not built for sm_80"),
        (causes.NONE_OF(("a", "b")), "this chip has none of a, b"),
        (causes.NO_PLAN(profiled=True), "no launch plan: it is a reference, or its plan could not be read"),
        (causes.NO_PLAN(), "no launch plan"),
        (causes.FAILED_BEFORE(causes.FAILED_BEFORE(causes.Hang(2.0))), "failed before: no answer within 2 s: hang?"),
        (causes.SANITIZER_ERRORS("memcheck", 1, 2, "Invalid read"), "memcheck: 1 error, 2 warnings: Invalid read"),
        (causes.CRASH(-9), "killed by SIGKILL (out of memory?)"),
    ],
)
def test_a_text_has_what_is_known(cause: Cause, shown: str) -> None:
    assert cause_text(cause) == shown


def test_a_void_timing_is_read_as_one() -> None:
    assert isinstance(from_json(as_json(causes.OTHER_PROCESSES(2))), causes.VoidTiming)


def test_an_empty_optional_value_is_a_missing_one() -> None:
    assert from_json({"cause": "not_built", "arch": ""}) == causes.NOT_BUILT()


def test_a_cause_of_a_missing_plugin_is_kept() -> None:
    written = {"cause": "of_a_plugin", "detail": [1]}
    assert as_json(from_json(written)) == written


WRONG = [None, "hang", {}, {"cause": 3}, {"cause": "hang", "seconds": "long"}, {"cause": "no_counter"},
         {"cause": "clocks_disagree", "difference_us": "a", "events_us": 2.0},
         {"cause": "failed_before", "because": {"cause": "caches", "kept": True}}]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_another_form_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError):
        from_json(wrong)


@pytest.mark.parametrize(("values", "named"), [((), {}), (("a", "b"), {}), ((), {"gpu": "a"}), (("a",), {"chip": "a"})])
def test_other_data_than_the_text_has_is_refused(values: tuple[str, ...], named: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="no_counter"):
        causes.NO_COUNTER(*values, **named)


def test_a_code_is_one_cause() -> None:
    with pytest.raises(ValueError, match="hang"):
        type("Other", (Cause,), {"code": "hang", "__module__": __name__, "form": "another"})
    with pytest.raises(ValueError, match="no_counter"):
        Template("no_counter", "another")


def test_every_cause_of_a_feature_is_read_by_a_process_that_has_not_loaded_the_feature() -> None:
    modules = [
        m.name for m in pkgutil.walk_packages(features.__path__, "flashcore.features.") if "__main__" not in m.name
    ]
    codes = set()
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ImportError:  # of an optional package
            continue
        kinds = [
            k
            for k in vars(module).values()
            if isinstance(k, Template) or (isinstance(k, type) and issubclass(k, Cause))
        ]
        codes |= {k.code for k in kinds if isinstance(k, Template) or k.__module__ == name}
    codes -= {k.code for k in vars(causes).values() if isinstance(k, Template)}
    assert "capture_stopped" in codes and len(codes) > 10
    assert {code for code in codes if plugin.entry("causes", code) is None} == set()

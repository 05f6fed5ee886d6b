"""The form of ``suite.toml``: the keys of each table, and messages about mistakes.

:mod:`flashcore.suites.resolve` converts the form into the model, and checks references between entries.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, create_model

from flashcore.model import plugin
from flashcore.model.catalogue import FACTS, PHASE_SHARE
from flashcore.model.suite import Stage, Suite, TimingMode
from flashcore.model.text import did_you_mean, shortened
from flashcore.suites.parts import LISTS, tables

MOST_LETTERS = 100  # in a name: file names contain a variant's and a shape's
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=MOST_LETTERS)]
Arch = Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}[af]?$")]
_ArchTemplate = Annotated[str, Field(pattern=r"^(sm_[0-9]{2,3}[af]?|.*\{.+)$")]  # with a placeholder of a sweep
Release = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
Text = Annotated[str, Field(min_length=1)]
Dimension = Annotated[str, Field(pattern=r"^([A-Za-z][A-Za-z0-9_]*([-+*/][1-9][0-9]*)?)$")]
Scalar = int | float | str | bool
MOST_NESTED = 20
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Form(BaseModel):
    """Base of all tables: unknown keys, wrong types and NaN are mistakes. The text below a key is its meaning."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        defer_build=True,
        use_attribute_docstrings=True,
    )


# In quotes or not; the forms are strict.
_Date = Annotated[datetime.date, Field(strict=False), AfterValidator(datetime.date.isoformat)]
# An empty list would match nothing.
_Globs = Annotated[list[Text], Field(min_length=1)]


class ProblemForm(Form):
    """``[problem.<name>]``"""

    file: Text
    """Python file of the suite with `make_inputs`, `reference` and the FLOP and byte formulas."""
    op_schema: Text = Field(alias="schema")
    """Operator schema in torch's form: tensors, scalars, and outputs as `Tensor(a!)`."""
    dims: dict[str, list[Dimension | Annotated[int, Field(ge=1)]]]
    """Tensor → its dimensions: a name, a number, or a name with `+ - * /` and a number."""
    dtypes: dict[str, str]
    """Tensor → its element type as torch names it; `*` stands for all others."""
    inout: list[str] = []
    """Outputs that are also inputs."""
    strided: dict[str, Literal["rows", "any"]] = {}
    """Tensors that need not be contiguous: `rows` (only the last dimension is) or `any` strides."""
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1)
    """Seeds of the inputs that `check` uses."""


class ShapeForm(Form):
    """``[shape.<name>]``"""

    problem: Name | None = None
    """Problem that it belongs to; needed if the suite has several."""
    params: dict[str, Scalar]
    """Values of the dimensions and arguments; `name = false` leaves an optional tensor out."""
    # sanitize is slow and needs small shapes, so it is opt-in
    stages: list[Stage] = Field(default=["check", "bench", "profile"], min_length=1)
    """Stages that use it; `sanitize` is slow, needs small shapes, and is not in the default."""
    rank_by: TimingMode | None = None
    """Timing mode that ranks the variants on it; default: the suite's."""
    repeats: int = Field(default=0, ge=0, le=100_000)
    """Least number of calls that `check` compares bit by bit; 0: the option's."""
    same_as: Name | None = None
    """Shape of another problem with the same computation: both are one row in every table."""


class PredictionForm(Form):
    """One of a variant's ``predictions``."""

    fact: Name
    """Predicted fact."""
    source: Text
    """Where the prediction is made: a document, a calculation."""
    before: float | None = Field(default=None, alias="from")
    """Value before the change, in the fact's unit."""
    after: float | None = Field(default=None, alias="to")
    """Predicted value."""
    device: str | None = None
    """GPU that it is for; default: every GPU."""
    shape: Name | None = None
    """Shape that it is for; default: every shape."""


class WhereForm(Form):
    """A variant's ``where``. Its ``archs`` are by default the suite's, and may include others."""

    archs: list[_ArchTemplate] | None = Field(default=None, min_length=1)
    """Archs that it is compiled for; may have placeholders of the sweep."""
    shapes: _Globs = ["*"]
    """Globs of the shapes that it runs on; may have placeholders of the sweep."""
    unsupported: dict[_ArchTemplate, Text] = {}
    """Arch → why it does not support it."""


def _sweep_kind(value: object) -> str | None:
    return "<axes>" if isinstance(value, dict) else "<points>" if isinstance(value, list) else None


# The axes of a grid, or a list of points.
_Axes = dict[Name, Annotated[list[int | str], Field(min_length=1)]]
_Points = Annotated[list[dict[Name, int | str]], Field(min_length=1)]
_Sweep = Annotated[
    Annotated[_Axes, Tag("<axes>")] | Annotated[_Points, Tag("<points>")],
    Discriminator(_sweep_kind),
]


class VariantForm(Form):
    """``[variant.<name or template>]``"""

    technique: Text
    """What it does differently from its parent, in a few words; may have placeholders of the sweep."""
    also: Text | None = None
    """Further differences from its parent."""
    roof: Name
    """Rate that bounds its arithmetic: `fp16_tensor`, `fp32`, or a resource such as `dram`."""
    tolerance: Name
    """Class of the problem file's `TOLERANCES` by which its answers are judged."""
    tolerance_reason: Text
    """Why this class is right for it."""
    problem: Name | None = None
    """Problem that it solves; needed if the suite has several."""
    source: Text | None = None
    """CUDA file with its kernels and launcher."""
    config: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], Scalar] = {}
    """Macros of the CUDA file, or keyword arguments of the callable; may have placeholders of the sweep."""
    flags: list[Text] = []
    """More of nvcc's flags, after the suite's; may have placeholders of the sweep."""
    libraries: list[Text] = []
    """More libraries."""
    packages: list[Text] = []
    """More Python packages with C++ headers; of a reference, those without which it cannot run."""
    callable: Annotated[str, Field(pattern=r"^[^:]+\.py:[A-Za-z_]\w*$")] | None = None
    """Python function, `FILE.py:NAME`: a reference, or with `cubins` a variant."""
    cubins: Text | None = None
    """Language that compiles the callable's kernels, or folder with recorded `ARCH/*.cubin`."""
    plan: Literal["declared", "recorded"] = "declared"
    """`declared` by the source (`launch.h`), or `recorded` from an unmodified launcher (`launcher.h`)."""
    parent: Text | None = None
    """Variant that it was made from, and is compared with."""
    document: Text | None = None
    """Key of `documents` that describes it."""
    where: WhereForm = WhereForm()
    """Archs and shapes that it supports; default: all of the suite and its problem."""
    predictions: list[PredictionForm] = []
    """Predicted effects of the technique, which reports compare with measurements."""
    sweep: _Sweep | None = None
    """Values for the placeholders in `{braces}`: lists, of which each combination is a variant, or a list of points."""


class TableForm(Form):
    """A plugin's table ``[<table>.<name>]``: its keys, and further checks."""

    #: The entries of the suite by which the tables are named, such as ``problems``; empty: any name.
    named_by: ClassVar[str] = ""

    def mistakes(self, suite: Suite) -> Iterator[tuple[str, str, str]]:
        """Each mistake in a table of this suite: the key, the expected and the actual value."""
        return iter(())


class ScopeForm(Form):
    """The scope of a budget, waiver or rule, in globs."""

    variants: _Globs = ["*"]
    """Globs of variants."""
    archs: _Globs = ["*"]
    """Globs of archs."""
    shapes: _Globs = ["*"]
    """Globs of shapes."""
    kernels: _Globs = ["*"]
    """Globs of kernels; `!GLOB` excludes."""


_Names = Text | _Globs


class DecisionForm(Form):
    """What a budget requires of the compiler's decisions, and in which piece of the source."""

    must: _Names = []
    """Decisions that the machine code must show; a number before one is the least count of instructions."""
    must_not: _Names = []
    """Decisions that it must not show."""
    function: Text | None = None
    """Only in this function of the source."""
    mark: Text | None = None
    """Only in the statement at this comment."""
    quote: Text | None = None
    """Only in the statement with this code."""


class BudgetForm(ScopeForm, DecisionForm):
    """``[[budget]]``: on a fact, or on what the compiler ``must`` and ``must_not`` do"""

    name: Name
    """Name of the budget."""
    fact: Name | None = None
    """Limited fact (`flashcore list --facts`)."""
    source: Text
    """Where the limit comes from."""
    severity: Literal["limit", "goal"] = "limit"
    """`limit` fails the gate; `goal` is only reported."""
    minimum: float | None = Field(default=None, alias="min")
    """Least allowed value, in the fact's unit."""
    maximum: float | None = Field(default=None, alias="max")
    """Largest allowed value, in the fact's unit."""
    stretch: float | None = None
    """Better value to aim for."""
    documents: _Globs | None = None
    """Only variants of these `documents`."""
    device: str | None = None
    """Only on GPUs of this name or key of the device table."""


class WaiverForm(ScopeForm):
    """``[[waiver]]``"""

    budget: Name
    """Budget whose miss is accepted."""
    accepted: float
    """Accepted value; a worse one fails."""
    reason: Text
    """Why it is accepted."""
    expires: _Date | None = None
    """Last day of the waiver."""


class GateRuleForm(ScopeForm):
    """One rule of ``[gate]``."""

    facts: list[Text] = Field(min_length=1)
    """Globs of the facts that it applies to."""
    severity: Literal["fail", "show", "ignore"] = "fail"
    """What a worse value does: `fail` the gate, be shown, or be ignored."""
    tolerance: float | None = Field(default=None, ge=0)
    """Share of the baseline's value by which a fact may be worse."""
    reason: Text | None = None
    """Why it is looser than the default; required then."""
    expires: _Date | None = None
    """Last day of a looser rule."""


class GateForm(Form):
    """``[gate]``"""

    baseline: Text | None = None
    """Baseline file in the suite's folder; default: `baseline.txt`."""
    rule: list[GateRuleForm] = []
    """Rules, of which the last that matches applies."""


class Manifest(Form):
    """A suite's manifest, or a file that it includes."""

    name: Name
    """Name of the suite."""
    title: Text
    """Title in reports."""
    nvcc: Release | None = None
    """Release of nvcc that the static budgets were set with; others leave static facts unmeasured."""
    archs: list[Arch] = Field(min_length=1)
    """Archs that variants are compiled for."""
    baseline: Name
    """Variant over which speedups are counted."""
    rank_by: TimingMode = "isolated"
    """Timing mode that ranks variants, unless a shape has its own."""
    manifests: list[Text] = []
    """Files with more tables of this manifest; globs."""
    include: list[Text] = []
    """Folders of headers that sources include."""
    flags: list[Text] = ["-O3", "-std=c++17"]
    """nvcc's flags, besides those that the harness adds; `build` and `list` show the whole command."""
    libraries: list[Text] = []
    """Libraries that variants are linked with: names such as `cublas`, or files."""
    packages: list[Text] = []
    """Installed Python packages whose C++ headers sources include, such as `torch`, which is linked too."""
    documents: dict[str, Text] = {}
    """Key → title of the design documents that variants and budgets name."""
    notes: list[Text] = []
    """Notes in every report."""
    problem: dict[Name, ProblemForm] = Field(min_length=1)
    """What is computed."""
    shape: dict[Name, ShapeForm] = Field(min_length=1)
    """Parameters that it is computed for."""
    variant: dict[Text, VariantForm] = Field(min_length=1)
    """Ways to compute it, and references."""
    budget: list[BudgetForm] = []
    """Limits on facts and compiler decisions."""
    waiver: list[WaiverForm] = []
    """Accepted misses of budgets."""
    gate: GateForm = GateForm()
    """Comparison with the baseline."""


def manifest_form() -> type[Manifest]:
    """The manifest's form, with the tables and language releases of the loaded plugins."""
    return _extended(tuple(plugin.entries("tables")), tuple(dict(plugin.entries("languages"))))


@functools.cache
def _extended(tables: tuple[tuple[str, str], ...], languages: tuple[str, ...]) -> type[Manifest]:
    added: dict[str, Any] = {
        language: (Release | None, Field(None, description=f"Release of {language} that static budgets were set with."))
        for language in languages
    }
    for key, form in tables:
        resolved = plugin.resolve(form)
        added[key] = (dict[Name, resolved], Field({}, description=str(resolved.__doc__).partition("\n")[0]))  # type: ignore[valid-type]
    return create_model("Manifest", __base__=Manifest, __doc__=Manifest.__doc__, **added)


def schema_text() -> str:
    """The JSON Schema of a manifest and of included files, for editors; committed as ``suite.schema.json``."""
    schema = manifest_form().model_json_schema()
    required = [key for key in schema.pop("required") if key not in tables()]  # these may be in an included file
    included = sorted({*tables(), *(key.split(".")[0] for key in LISTS)})
    schema["anyOf"] = [
        {"title": "a suite.toml", "required": required},
        {"title": "a file that a suite.toml includes", "propertyNames": {"enum": included}},
    ]
    for form in ("BudgetForm", "PredictionForm"):
        properties = schema["$defs"][form]["properties"]
        properties["fact"] = {"$ref": "#/$defs/fact", "description": properties["fact"]["description"]}
    schema["$defs"]["fact"] = {"anyOf": [{"enum": list(FACTS)}, {"type": "string", "pattern": f"^{PHASE_SHARE}"}]}
    # If the keys of a table have a pattern, it has no other keys.
    closed = json.loads(
        json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **schema}),
        object_hook=lambda t: {**t, "additionalProperties": False} if "patternProperties" in t else t,
    )
    return json.dumps(closed, indent=1) + "\n"


def parse(data: Mapping[str, Any]) -> Manifest | list[tuple[str, str]]:
    """The manifest, or every mistake in it: the key, and the message."""
    if unsafe := list(_unsafe("", data)):
        return unsafe
    try:
        return manifest_form().model_validate(data)
    except ValidationError as error:
        return mistakes(error.errors(), data)


def _unsafe(key: str, value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Values that no key accepts. They are reported before validation computes with them."""
    if isinstance(value, (dict, list)):
        if depth == MOST_NESTED:
            yield key[:100], f"expected at most {MOST_NESTED} nested tables and lists, found more"
            return
        for k, v in value.items() if isinstance(value, dict) else enumerate(value):
            inner = f"{key}[{k}]" if isinstance(k, int) else f"{key}.{k}".lstrip(".")
            yield from _unsafe(inner, v, depth + 1)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield key, f"expected a 64-bit integer, found one of {value.bit_length()} bits"
    elif isinstance(value, float) and 1e30 < abs(value) < math.inf:
        yield key, f"expected a number up to 1e30, found {value}"
    elif isinstance(value, str) and (control := _CONTROL.search(value)):
        yield key, f"expected text, found the control character {control[0]!r}"


def mistakes(errors: Iterable[Any], data: Any, form: type[Form] | None = None) -> list[tuple[str, str]]:
    """Converts pydantic's errors about ``data`` into keys and messages.

    pydantic reports one error per member of a union; these become one line.

    Args:
        form: the form of ``data``; by default a manifest's.
    """
    form = form or manifest_form()
    expected: dict[tuple[str, str], dict[str, None]] = {}
    for error in errors:
        actual = "nothing" if error["type"] == "missing" else shortened(error["input"])
        expected.setdefault((_key(error, data), actual), {})[_expectation(error, form)] = None
    return [(key, f"expected {_either([*texts])}, found {actual}") for (key, actual), texts in expected.items()]


def _key(error: Any, data: Any) -> str:
    key = ""
    value = data
    last = len(error["loc"]) - 1
    for i, part in enumerate(error["loc"]):
        if isinstance(part, str) and (not isinstance(value, Mapping) or part not in value):
            # Members of a union and "[key]" are added by pydantic, and are not keys of the manifest.
            if error["type"] == "missing" and i == last:
                key += f".{part}"
            continue
        key += f"[{part}]" if isinstance(part, int) else f".{part}"
        try:
            value = value[part]
        except (LookupError, TypeError):
            value = None
    return key.lstrip(".") or "(top level)"


def _either(expectations: Sequence[str]) -> str:
    return expectations[0] if len(expectations) == 1 else f"{', '.join(expectations[:-1])} or {expectations[-1]}"


_EXPECTED = {
    "missing": "a value",
    "extra_forbidden": "no such key",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true/false",
    "finite_number": "a finite number",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "union_tag_not_found": "a table of lists or a list of tables",  # a sweep: the only tagged union
}


def _keys(place: Iterable[str | int], form: Any) -> list[str]:
    """The valid keys of the table at ``place``; empty if no form describes it."""
    for part in place:
        fields = getattr(form, "model_fields", {})
        if fields:
            form = next((f.annotation for name, f in fields.items() if part in (name, f.alias)), None)
        elif get_origin(form) in (dict, list):
            form = get_args(form)[-1]
    return [f.alias or name for name, f in getattr(form, "model_fields", {}).items()]


def _expectation(error: Any, form: type[Form]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden" and (keys := _keys(error["loc"][:-1], form)):
        name = str(error["loc"][-1])
        near = did_you_mean(name, keys) or f" (is it misspelled? valid keys: {', '.join(keys)})"
        return _EXPECTED[kind] + near + (f"; {plugin.WHERE}" if len(error["loc"]) == 1 else "")
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind == "string_pattern_mismatch":
        what = "a key" if error["loc"][-1] == "[key]" else "text"
        return f"{what} matching {context['pattern']}"
    if kind == "literal_error":
        return f"one of {context['expected']}"
    if kind == "too_short":
        return f"at least {context['min_length']} item"
    if kind.startswith("date"):
        return "a date such as 2027-01-31"
    message: str = error["msg"]
    return message[0].lower() + message[1:]

"""Converts a manifest's problems and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from flashcore.model.suite import DIMENSION, Argument, Problem, Shape, TimingMode
from flashcore.suites.mistakes import Mistakes
from flashcore.suites.operator_schema import CPP_WORDS, SCALAR_TYPES, parse_schema
from flashcore.suites.schema import ProblemForm, ShapeForm


def dimensions(arguments: Iterable[Argument]) -> tuple[str, ...]:
    """The dimensions of an operator, in the order of its arguments. An optional tensor may be absent, so it cannot
    define one."""
    return tuple(dict.fromkeys(d for a in arguments if not a.optional for d in a.dims if d.isidentifier()))


def problem(name: str, form: ProblemForm, root: Path, mistakes: Mistakes) -> Problem:
    """The problem that a form declares; its file is relative to ``root``."""
    key = f"problem.{name}"
    if not (root / form.file).is_file():
        mistakes.add(f"{key}.file", "a file of the suite", f"no {form.file}")
    try:
        parsed = parse_schema(form.op_schema, form.inout)
    except ValueError as error:
        mistakes.add(f"{key}.schema", str(error), repr(form.op_schema))
        parsed = []
    arguments = [_tensor(key, a, form, mistakes) if a.kind == "tensor" else a for a in parsed]
    dims = dimensions(arguments)
    names = {a.name for a in arguments}
    for a in arguments:
        unnamed = [d for d in a.dims if (part := DIMENSION.fullmatch(d)) and part["name"] and part["name"] not in dims]
        if unnamed:
            expected = "names that are a dimension of a tensor, without a number"
            mistakes.add(f"{key}.dims.{a.name}", expected, ", ".join(unnamed))
        if a.strides and not a.dims:
            mistakes.add(f"{key}.strided.{a.name}", "a tensor that has dimensions", "none")
        if a.strides and f"{a.name}_strides" in names:
            strides = f"{a.name}_strides"
            mistakes.add(f"{key}.strided.{a.name}", f"the name {strides} to be free", "an argument of that name")
    outputs = {a.name for a in arguments if a.mutable}
    if arguments and (inputs := [n for n in form.inout if n not in outputs]):
        mistakes.add(f"{key}.inout", "outputs of the schema, written Tensor(a!)", ", ".join(inputs))
    tensors = {a.name for a in arguments if a.kind == "tensor"}
    for table, allowed in (("dims", tensors), ("dtypes", {*tensors, "*"}), ("strided", tensors)):
        for unknown in sorted(getattr(form, table).keys() - allowed):
            mistakes.add(f"{key}.{table}.{unknown}", "a tensor of the schema", "no such tensor")
    return Problem(name, form.file, form.op_schema, tuple(arguments), dims, tuple(form.seeds))


def _tensor(key: str, argument: Argument, form: ProblemForm, mistakes: Mistakes) -> Argument:
    """A tensor argument with its dimensions, dtype and strides."""
    name = argument.name
    if name not in form.dims:
        mistakes.add(f"{key}.dims.{name}", "the names of its dimensions", "nothing")
    dtype = form.dtypes.get(name, form.dtypes.get("*", ""))
    if dtype not in SCALAR_TYPES:
        expected = f"one of {', '.join(SCALAR_TYPES)}"
        mistakes.add(f"{key}.dtypes.{name}", expected, repr(dtype) if dtype else "nothing")
    dims = tuple(map(str, form.dims.get(name, [])))
    for dim in CPP_WORDS.intersection(dims):
        mistakes.add(f"{key}.dims.{name}", "a name that is not reserved in C++", repr(dim))
    return replace(argument, dims=dims, dtype=dtype, strides=form.strided.get(name, ""))


def problem_name(key: str, name: str | None, problems: Mapping[str, Problem], mistakes: Mistakes) -> str:
    """The problem of a shape or variant; by default the manifest's first."""
    first = next(iter(problems))
    if name is not None and name not in problems:
        mistakes.add(f"{key}.problem", f"one of {', '.join(problems)}", repr(name))
        return first
    return name or first


def shape(
    name: str, form: ShapeForm, problems: Mapping[str, Problem], rank_by: TimingMode, mistakes: Mistakes
) -> Shape:
    """The shape that a form declares; ``rank_by`` is the suite's default."""
    key = f"shape.{name}"
    problem = problems[problem_name(key, form.problem, problems, mistakes)]
    stages, mode = tuple(form.stages), form.rank_by or rank_by
    shape = Shape(name, problem.name, form.params, stages, mode, form.repeats, form.same_as or "")
    for dim in problem.dims:
        size = form.params.get(dim)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            value = "nothing" if size is None else repr(size)
            mistakes.add(f"{key}.params.{dim}", "a whole number of at least 1", value)
            return shape
    for argument in problem.arguments:
        if argument.optional and not isinstance(present := form.params.get(argument.name, True), bool):
            mistakes.add(f"{key}.params.{argument.name}", "true or false: whether it is present", repr(present))
        try:
            if min(sizes := argument.sizes(form.params), default=1) < 1:
                mistakes.add(f"{key}.params", f"{argument.name} not to be empty", f"{sizes}")
        except KeyError:  # reported for the problem
            continue
        except ValueError as error:
            mistakes.add(f"{key}.params", f"whole sizes of {argument.name}", str(error))
    return shape


def same(shape: Shape, shapes: Mapping[str, Shape], problems: Mapping[str, Problem], mistakes: Mistakes) -> None:
    """Requires the shape that ``same_as`` names to have the same tensors, and equal values of common parameters."""
    key = f"shape.{shape.name}.same_as"
    others = {s.name: s for s in shapes.values() if not s.same_as and s.problem != shape.problem}
    mistakes.check_name(key, shape.same_as, others, "a shape of another problem, without same_as")
    if other := others.get(shape.same_as):
        sizes = []
        for s in (other, shape):
            params = {name: s.params[name] for name in other.params if name in shape.params}
            tensors = {a.name: (a.dtype, *a.sizes(s.params)) for a in problems[s.problem].arguments if a.dims}
            sizes.append(f"{params} {dict(sorted(tensors.items()))}")
        if sizes[0] != sizes[1]:
            actual = f"{sizes[1]}; hint: without same_as they are two rows"
            mistakes.add(key, f"the parameters and tensors of {other.name}, {sizes[0]}", actual)

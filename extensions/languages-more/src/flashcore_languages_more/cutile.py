"""cuTile's launches. Its compiler chooses threads and clusters, which are in the cubin, and tells its decisions as
remarks on lines of Python. Spills it does not tell."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from flashcore.features.languages.launches import Call, StandIn
from flashcore.features.languages.traced import Package, Traced
from flashcore.readers import cubin

_launched: list[tuple[Sequence[int], Any, Sequence[Any], bool]] = []


def prepare() -> tuple[type, ...]:
    from cuda import tile

    def launch(
        _: Any, grid: Sequence[int], kernel: Any, values: Any, /, *, programmatic_dependent_launch: bool = False
    ) -> None:
        _launched.append((grid, kernel, values, programmatic_dependent_launch))

    tile.launch = launch  # here, since a module may import it by name
    return (tile.kernel,)


def launches(
    function: Callable[..., Any], arguments: Sequence[Any], config: Mapping[str, Any], arch: str
) -> list[Call]:
    _launched.clear()
    function(*arguments, **config)
    return [_call(*launched, arch) for launched in _launched]


def _call(grid: Sequence[int], kernel: Any, values: Sequence[Any], programmatic: bool, arch: str) -> Call:
    from cuda.tile import _compile, compilation

    function = kernel._annotated_function
    named = list(zip(function.pysig.parameters, values, function.parameter_annotations, strict=True))
    parameters = [_constraint(value, annotation) for _, value, annotation in named]
    signature = compilation.KernelSignature(parameters, compilation.CallingConvention.cutile_python_v1())
    compile_cubin, file = _compile.compile_cubin, io.BytesIO()
    with tempfile.NamedTemporaryFile() as remarks:

        def with_remarks(*inputs: Any, **options: Any) -> Any:
            return compile_cubin(*inputs, **{**options, "remarks_output_file": remarks.name})

        with mock.patch.object(_compile, "compile_cubin", with_remarks):
            compilation.export_kernel(kernel, [signature], file, gpu_code=arch.rstrip("af"), output_format="cubin")
        log = Path(remarks.name).read_text(encoding="utf-8")
    code = file.getvalue()
    (compiled,) = cubin.parse(code, arch, function.pyfunc.__name__).kernels
    labels = [f"{name}={value}" for name, value, annotation in named if annotation.constant]
    labels += [f"{name}:{_divisors(value)}" for name, value, _ in named if isinstance(value, StandIn)]
    return Call(
        symbol=function.pyfunc.__name__,
        labels=labels,
        code=code,
        log=log,
        grid=[*grid, 1, 1][:3],
        threads=[*(compiled.block or (1, 1, 1))],
        cluster=[*(compiled.cluster or (1, 1, 1))],
        flags=(programmatic, False),
        arguments=[word for _, value, annotation in named if not annotation.constant for word in _words(value)],
    )


def _constraint(value: Any, annotation: Any) -> Any:
    """What is assumed of a parameter: what cuTile itself assumes of a contiguous tensor that aliases no other."""
    from cuda import tile
    from cuda.tile import compilation

    if annotation.constant:
        return value
    if not isinstance(value, StandIn):
        return compilation.ScalarConstraint(tile.float32 if isinstance(value, float) else tile.int32)
    strides, sizes = _divisors(value)
    return compilation.ArrayConstraint(
        getattr(tile, {"bool": "bool_"}.get(name := str(value.dtype).rpartition(".")[2], name)),
        value.ndim,
        index_dtype=tile.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=[None] * (value.ndim - 1) + [1],
        stride_divisible_by=strides,
        shape_divisible_by=sizes,
        base_addr_divisible_by=16,
    )


def _divisors(tensor: StandIn) -> tuple[list[int], list[int]]:
    """What strides and sizes are divisible by, in elements."""
    bytes_16 = 16 // tensor.itemsize
    strides = [bytes_16 if stride % bytes_16 == 0 else 1 for stride in tensor.stride()]
    return strides, [16 if size % 16 == 0 else 1 for size in tensor.shape]


def _words(value: Any) -> Iterator[str]:
    """A parameter's words: a tensor has its address, sizes and strides."""
    yield from [value.name, *map(str, (*value.shape, *value.stride()))] if isinstance(value, StandIn) else [repr(value)]


LANGUAGE = Traced(
    "cutile",
    Package("cuda-tile", "./extensions/languages-more[cutile]"),
    __name__,
    variables="CUDA_TILE_",
    launcher="flashcore_judge.launcher.program:target",
)

"""Slugs of functions and of launch configurations: short, alike for what is alike, apart for what is not."""

from __future__ import annotations

import re

import pytest

from flashcore.readers.kernel_names import canonical
from flashcore.readers.ncu.results import Metric, Result, Workload
from flashcore.records import slugs


@pytest.mark.parametrize(
    ("kernel", "function", "slug"),
    [
        ("saxpy(int, float, const float *, float *)", "saxpy", "saxpy"),
        ("void ns::strided<float>(T1 *, int, int)", "ns::strided<float>", "ns_strided_float"),
        ("void spilly<(int)96>(float *, int)", "spilly<96>", "spilly_96"),
        ("void spilly<96>(float *, int)", "spilly<96>", "spilly_96"),
        ("void at::native::(anonymous namespace)::f<a::B<int (*)(int)>>(C)", "at::native::f<a::B<int(*)(int)>>",
         "at_native_f_a_b_int_int"),
        ("softmax_kernel", "softmax_kernel", "softmax_kernel"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("_ZN3foo3barEv", "foo::bar", "foo_bar"),
        ("3d_conv", "3d_conv", "k_3d_conv"),
    ],
)  # fmt: skip
def test_a_function_has_its_name_without_type_and_parameters(kernel: str, function: str, slug: str) -> None:
    assert canonical(kernel) == function
    assert slugs.variants([kernel])[kernel] == slug


def test_long_names_and_overloads_are_told_apart() -> None:
    long = [f"void cutlass::Kernel<{'x' * 90}, {n}>(Params)" for n in range(3)]
    overloads = ["f(int)", "f(float)"]
    result = slugs.variants([*long, *overloads, "g(int)"])
    assert len(set(result.values())) == 6 and result["g(int)"] == "g"
    assert all(re.fullmatch(r"[a-z][a-z0-9_]{0,66}", slug) for slug in result.values())
    assert slugs.variants(["f(float)", "f(int)"])["f(int)"] == result["f(int)"], "whatever their order"


def test_a_long_path_keeps_its_end() -> None:
    folders = "/".join(["build", "CMakeFiles", "target.dir"] * 3)
    paths = [f"{folders}/{name}.cu.o" for name in ("first", "second")]
    first, second = (slugs.end_slug(path) for path in paths)
    assert re.fullmatch(r"[a-z]\w*_target_dir_first_cu_o_[0-9a-f]{6}", first) and len(first) <= 60
    assert "second_cu_o" in second and slugs.end_slug(f"other/{paths[0]}") != first
    for short in ("a/first.cu.o", "x" * 90):
        assert slugs.end_slug(short) == slugs.slug(short)


@pytest.mark.parametrize(
    ("parameters", "slug"),
    [
        ({"grid": "16384x1x1", "block": "256x1x1"}, "g16384_b256"),
        ({"grid": "8x4x1", "block": "32x4x2", "dynamic_smem": 49152, "cluster": 2}, "g8x4_b32x4x2_s49152_c2"),
        ({"grid": "1x1x1", "block": "1x1x1"}, "g1_b1"),
        ({"grid": "1x1x8", "block": "32x1x1"}, "g1x1x8_b32"),
        ({"launch": "graph"}, "graph"),
    ],
)
def test_a_launch_configuration_has_a_name(parameters: dict[str, int | float | str | bool], slug: str) -> None:
    assert slugs.shape(parameters) == slug


@pytest.mark.parametrize(
    ("workload", "grid", "metrics", "parameters"),
    [
        ("kernel", (8, 4, 1), {}, {"grid": "8x4x1", "block": "32x1x1"}),
        ("kernel", (8, 1, 1), {"launch__cluster_size": 2.0, "launch__shared_mem_per_block_dynamic": 512.0},
         {"grid": "8x1x1", "block": "32x1x1", "dynamic_smem": 512, "cluster": 2}),
        ("kernel", (0, 0, 0), {}, {"launch": "unknown"}),
        ("graph", (0, 0, 0), {}, {"launch": "graph"}),
    ],
)  # fmt: skip
def test_a_launch_has_the_parameters_that_ncu_gives(
    workload: Workload, grid: tuple[int, int, int], metrics: dict[str, float], parameters: dict[str, object]
) -> None:
    named = {name: Metric(value) for name, value in metrics.items()}
    assert slugs.shape_parameters(Result(0, "k", workload, grid, (32, 1, 1), (9, 0), named)) == parameters

"""A kernel has one name, as cubins, the C++ library and ncu spell it."""

from __future__ import annotations

import pytest

from flashcore.readers import kernel_names
from flashcore.readers.kernel_names import canonical, identifier, without_arguments


@pytest.mark.parametrize(
    ("mangled", "as_ncu", "name"),
    [
        ("saxpy_kernel", "saxpy_kernel(int, float, const float *, float *)", "saxpy_kernel"),
        ("_Z6spillyILi96EEvPfi", "void spilly<96>(float *, int)", "spilly<96>"),
        ("_Z6spillyILi96EEvPfi", "void spilly<(int)96>(float *, int)", "spilly<96>"),
        ("_ZN2ns7stridedIfLb1ELj5EEEvPT_i", "void ns::strided<float, (bool)1, (unsigned int)5>(T1 *, int)",
         "ns::strided<float,1,5>"),
        ("_ZN2ns7stridedIjLb0ELj7EEEvPT_i", "void ns::strided<unsigned int, false, 7>(T1 *, int)",
         "ns::strided<unsigned_int,0,7>"),
        ("_Z3lamI2OpJPKfmEEvT_DpT0_", "void lam<Op, const float *, unsigned long>(T1, T2...)",
         "lam<Op,const_float*,unsigned_long>"),
        ("_ZN2ns39_GLOBAL__N__b38405c8_8_cap_t_cu__Z2goPf5innerEPi", "ns::<unnamed>::inner(int *)", "ns::inner"),
        ("_ZN2ns39_GLOBAL__N__b38405c8_8_cap_t_cu__Z2goPf4anonIL1E1EfEEvPKT0_PS3_",
         "void ns::<unnamed>::anon<(E)1, float>(const T2 *, T2 *)", "ns::anon<1,float>"),
        ("_Z11sgemm_naiveiiifPKfS0_fPf", "sgemm_naive(int, int, int, float, const float *, float *)", "sgemm_naive"),
    ],
)  # fmt: skip
def test_all_spellings_are_one_name(mangled: str, as_ncu: str, name: str) -> None:
    assert canonical(mangled) == canonical(as_ncu) == canonical(name) == name


def test_a_name_has_no_blanks_and_tells_instances_apart() -> None:
    names = {canonical(f"void f<{a}>(int)") for a in ("1", "2", "float", "const float *", "g<1, 2>", "(int)-3")}
    assert len(names) == 6 and not any(" " in name for name in names)


def test_without_a_demangler_the_mangled_name_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_names, "_library", lambda: None)
    kernel_names.demangled.cache_clear()
    assert canonical("_Z6spillyILi97EEvPfi") == "_Z6spillyILi97EEvPfi"
    kernel_names.demangled.cache_clear()


def test_a_long_type_of_a_parameter_takes_no_longer() -> None:
    kind = "at::" + "TensorIteratorBase" * 20
    assert canonical(f"void copy<f({kind}&)::lambda>(int)") == f"copy<f({kind}&)::lambda>"


def test_what_is_no_name_is_left() -> None:
    assert canonical("_Znonsense") == "_Znonsense" and canonical("") == "" and canonical("graph") == "graph"


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ("fused_wmma", "fused_wmma"),
        ("fused_wmma(Args, int)", "fused_wmma"),
        ("void a::b<c<1, (d)2>, e>(float const*)", "a::b"),
        ("void a<b<c>>::d<e>::f(int)", "a::d::f"),
        ("void <unnamed>::softmax<float>(float*)", "softmax"),
        ("void at::(anonymous namespace)::f<int>(int)", "at::f"),
        ("<x>", "<x>"),
    ],
)
def test_a_name_without_template_arguments(kernel: str, short: str) -> None:
    assert without_arguments(kernel) == short


@pytest.mark.parametrize("kernel", ["_ZN3one3two5threeIfEEvPf", "one::two::three<float>", "three"])
def test_the_identifier_of_a_kernel_is_its_innermost_name(kernel: str) -> None:
    assert identifier(kernel) == "three"


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("__nv_static_23__586562e3_4_k_cu__Z1fPf__Z4fillPf", "fill"),
        ("__nv_static_23__586562e3_4_k_cu__Z1fPf__ZN34_GLOBAL__N__586562e3_4_k_cu__Z1fPf4anonIfEEvPT_", "anon<float>"),
        ("_ZL4fillPf__static__5f1ae0f1c4e20b1d", "fill"),
        ("a__static__kernel", "a__static__kernel"),
    ],
)
def test_names_have_no_hash_of_a_file(mangled: str, name: str) -> None:
    assert canonical(mangled) == name


def test_namesakes_are_told_apart_by_as_little_as_possible() -> None:
    first, second = (f"_ZN35_GLOBAL__N__{of}_cu__Z2faPf4fillEPf" for of in ("a3567195_4_a", "b1e3de7b_4_b"))
    assert kernel_names.distinct([first]) == {first: "fill"}
    assert kernel_names.distinct([first, second]) == {first: "fill@a.cu", second: "fill@b.cu"}
    older = "__nv_static_{}__{}_tmpxft_0000{}_00000000_6_{}_cpp1_ii_8112f58a__Z4fillPf"
    names = [older.format(51, 47, "6cda", "fir"), older.format(70, 66, "1a00", "fir_filters_compute_80")]
    assert [*kernel_names.distinct(names).values()] == ["fill@fir", "fill@fir_filters"]
    integers = first.replace("EPf", "EPi")
    assert [*kernel_names.distinct([first, integers]).values()] == ["fill(float*)", "fill(int*)"]
    every = kernel_names.distinct([first, integers, second, first.replace("a3567195", "00000000")])
    assert [*every.values()] == ["fill(float*)@a.cu", "fill(int*)@a.cu", "fill(float*)@b.cu", "fill(float*)@a.cu@2"]

"""``flashcore bench --against REV``: real repositories and builds; timed on the CPU, where callables run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import Exit, UsageError
from flashcore.explain.comparison import Difference
from flashcore.features.compare import against, time_pairs
from flashcore.features.compare.against import AgainstOptions
from flashcore.features.compare.bench_options import as_json, as_text
from flashcore.features.compare.match_cases import MatchedCase
from flashcore.features.compare.time_pairs import Timings
from flashcore.machine import gpu_choice, toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.settings import Bench, Check, Settings
from flashcore.runner.journal import TaskResult, messages
from flashcore.stages.context import Context
from tests.conftest import NO_DISASSEMBLER, TOY, Built, flashcore, no_disassembler
from tests.support.repositories import git
from tests.support.spinning import SPIN, committed, spun

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(autouse=True)
def _without_sass() -> Iterator[None]:
    with no_disassembler():
        yield


@pytest.fixture
def spin(tmp_path: Path, compiler: toolchain.Nvcc, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The suite of callables in a repository of its own, which is the present folder."""
    monkeypatch.chdir(tmp_path)
    return committed(tmp_path, SPIN)


def compared(variant: str = "*", say: Callable[[str], None] = lambda _: None, **options: Any) -> tuple[Exit, Any]:
    """Runs the comparison with HEAD on the CPU; gives the exit code and its JSON."""
    settings = Settings("suite", variants=(variant,), bench=Bench(samples=30), check=Check(repeats=2))
    chosen: dict[str, Any] = {"processes": 4, "device": "cpu", **options}
    found = against.run(settings, AgainstOptions("HEAD", **chosen), say)
    print(as_text(found))
    return found.exit_code, json.loads(as_json(found))


def fates(results: Any) -> dict[str, str]:
    return {row["variant"]: row["outcome"] for row in results["rows"]}


# --- timed on the CPU ---------------------------------------------------------------------------


def test_twice_the_work_is_slower(spin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spun(spin, 4000)
    code, result = compared("spun")
    assert code == result["exit_code"] == Exit.FAILED and result["outcome"] == "failed"
    (case,) = result["rows"]
    assert (case["variant"], case["shape"], case["outcome"]) == ("spun", "small", "slower")
    (time,) = case["changes"]
    assert time["evidence"] == "processes" and 0.4 < time["ratio"] < 0.7 and 0 < time["noise"] < 1 / time["ratio"] - 1
    assert time["before"] / time["after"] == pytest.approx(time["ratio"], rel=0.1)
    assert len(time["process_changes"]) == len(time["aa_changes"]) == result["processes"] == 4
    assert result["largest_aa"] == max(map(abs, time["aa_changes"]))
    output = capsys.readouterr().out
    assert "1 slower (exit 1)" in output and "compared with itself in 4 processes" in output
    assert git(Path(), "status", "--porcelain", "--untracked-files=no") == "M suite/loops.py"
    assert not list(Path("build/revisions/against").iterdir())


def _answered(journal: Path) -> bool:
    return any(isinstance(message, TaskResult) for message in messages(journal.read_bytes()))


def test_less_work_is_faster_and_a_broken_comparison_goes_on(spin: Path) -> None:
    spun(spin, 500)

    def interrupt(text: str) -> None:
        if "process 2" in text:
            raise KeyboardInterrupt

    with pytest.raises(UsageError, match="did not end, found none"):
        compared("spun", resume=True)
    with pytest.raises(KeyboardInterrupt):
        compared("spun", interrupt)
    (kept,) = Path("build/revisions/against").iterdir()
    journals = {path: path.read_bytes() for path in kept.glob("turns/*/journal-*") if _answered(path)}
    assert len(journals) == 2

    def look(text: str) -> None:
        if "process 4" in text:
            assert {path: path.read_bytes() for path in journals} == journals
            assert sum(map(_answered, kept.glob("turns/*/journal-*"))) == 4

    code, result = compared("spun", look, resume=True)
    assert (code, fates(result)) == (Exit.OK, {"spun": "faster"})


def test_of_several_kinds_of_gpu_the_one_that_times_is_named(spin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h200, l4 = (Gpu(name, (9, 0), 132, 1, 1, 1980.0, "580") for name in ("NVIDIA H200", "NVIDIA L4"))
    monkeypatch.setattr(gpu_choice, "visible", lambda: {"GPU-a": h200, "GPU-b": h200, "GPU-c": l4})
    spun(spin, 4000)

    class Named(Exception):
        pass

    def say(text: str) -> None:
        if text.startswith("against: on GPU-a (NVIDIA H200); left out, of another kind: GPU-c (NVIDIA L4); "):
            assert text.endswith("CUDA_VISIBLE_DEVICES=GPU-c")
            raise Named
        assert not text.startswith("check:"), "before anything runs"

    with pytest.raises(Named):
        compared("spun", say, device="cuda")


def test_the_gpu_that_times_is_leased(spin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h200 = Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1980.0, "580")
    monkeypatch.setattr(gpu_choice, "visible", lambda: {"GPU-a": h200, "GPU-b": h200})
    spun(spin, 4000)
    free: list[bool] = []

    def wrong(pairs: Sequence[MatchedCase], *_: object) -> list[Difference]:
        free.extend(gpu_choice.is_free(uuid) for uuid in ("GPU-a", "GPU-b"))
        return [one.row("undecided", "not asked") for one in pairs]

    monkeypatch.setattr(against, "_wrong", wrong)
    monkeypatch.setattr(Context, "cannot_measure", "")
    compared("spun", device="cuda")
    assert free == [False, True] and gpu_choice.is_free("GPU-a")


def test_the_same_code_is_not_timed(spin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    references = spin / "peers.py"
    references.write_text("# a comment\n" + references.read_text())

    def never(*_: object, **__: object) -> Timings:
        raise AssertionError("there is nothing to time")

    monkeypatch.setattr(time_pairs, "run", never)
    code, result = compared(device="cuda")  # and no GPU is needed to say so
    assert (code, fates(result)) == (Exit.OK, {"steady": "same code", "spun": "same code"})


def test_a_wrong_build_is_not_timed(spin: Path) -> None:
    good = (spin / "peers.py").read_text()
    bad = good.replace("        pass\n    return x.clone()", "        pass\n    return x + 1")
    (spin / "peers.py").write_text(bad)
    code, result = compared("spun")
    assert (code, fates(result)) == (Exit.FAILED, {"spun": "failed"})
    assert result["rows"][0]["reason"].startswith("wrong: ")
    # Mending it is no regression, but whether it got slower nobody can say.
    git(spin, "commit", "-qam", "bad")
    (spin / "peers.py").write_text(good)
    code, result = compared("spun")
    assert (code, fates(result)) == (Exit.UNMEASURED, {"spun": "undecided"})
    assert "HEAD is wrong" in result["rows"][0]["reason"]


def test_what_is_new_has_nothing_to_be_compared_with(spin: Path) -> None:
    manifest = spin / "suite.toml"
    manifest.write_text(manifest.read_text().replace("[variant.spun]", "[variant.newer]"))
    code, result = compared()
    assert (code, fates(result)) == (Exit.OK, {"steady": "same code", "newer": "nothing to compare with"})
    # So has an operator that takes other arguments today.
    text = manifest.read_text().replace('"(Tensor x, ', '"(Tensor x, float unused, ')
    manifest.write_text(text)
    code, result = compared("steady")
    assert (code, fates(result)) == (Exit.OK, {"steady": "nothing to compare with"})
    assert "other arguments" in result["rows"][0]["reason"]


def test_a_manifest_that_was_wrong_is_named_by_its_revision(spin: Path) -> None:
    manifest = spin / "suite.toml"
    good = manifest.read_text()
    manifest.write_text(good.replace('baseline = "steady"', 'baseline = "none"'))
    git(spin, "commit", "-qam", "bad manifest")
    manifest.write_text(good)
    with pytest.raises(UsageError, match=r"^HEAD: suite/suite.toml: 1 mistake\n  suite.toml:6: baseline: expected a"):
        compared()


# --- built, not timed ---------------------------------------------------------------------------


@pytest.fixture
def toy(tmp_path: Path, toy: Built) -> Path:
    shutil.copytree(toy.folder, tmp_path / "build")  # what is committed is found built
    return committed(tmp_path, TOY)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy suite in a repository that no test changes, not built."""
    return committed(tmp_path_factory.mktemp("unchanged"), TOY)


def gate(folder: Path, *words: str) -> tuple[int, str, str]:
    """The command itself on the toy suite's first variant."""
    done = flashcore("bench", "--against", "HEAD", "--suite", "suite", "--variant", "plain", *words,
                     cwd=folder.parent, env={"CUDA_ARCH": "9.0"}, start=NO_DISASSEMBLER)  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_the_same_machine_code_needs_no_gpu(toy: Path) -> None:
    source = toy / "scale.cu"
    source.write_text("// a comment above\n" + source.read_text())
    code, message, heard = gate(toy)
    assert code == Exit.OK, heard
    assert "same code: plain/small" in message and "(exit 0)" in message


def test_other_code_cannot_be_judged_without_a_gpu(toy: Path) -> None:
    if Gpu.find() is not None:
        pytest.skip("gpu: there is a GPU")
    source = toy / "scale.cu"
    source.write_text(source.read_text().replace("  for (", "  __syncthreads();\n  for (", 1))
    code, message, heard = gate(toy)
    assert code == Exit.INCAPABLE, heard
    assert "undecided: the code differs, and no GPU on this machine: plain/small" in message


def test_what_does_not_compile_today_fails_and_what_did_not_is_no_measure(toy: Path) -> None:
    source = toy / "scale.cu"
    good = source.read_text()
    source.write_text(good + "\n#error planted\n")
    code, message, _ = gate(toy)
    assert code == Exit.FAILED
    assert "plain/small" in message and "failed: does not compile for sm_90a" in message
    git(toy, "commit", "-qam", "bad")
    source.write_text(good)
    code, message, _ = gate(toy)
    assert code == Exit.UNMEASURED
    assert "undecided: HEAD: does not compile for sm_90a" in message


@pytest.mark.parametrize(
    ("words", "results"),
    [
        (["--against", "no_such"], "expected a git revision"),
        (["--against", "HEAD", "--energy"], "--energy: expected without --against"),
        (["--against", "HEAD", "--processes", "3"], "--processes 3: expected at least 4"),
        (["--against", "HEAD", "--alpha", "1"], "--alpha 1: expected a rate"),
        (["--against", "HEAD", "--effect", "-2"], "--effect -2: expected percent"),
        (["--against", "HEAD", "--format", "junit"], "--format junit: expected table, json, or"),
        (["--processes", "9"], "--processes: expected together with --against"),
        (["--against", "HEAD", "--gpus", "2"], "--gpus: expected without --against"),
    ],
)
def test_wrong_usage_is_named(unchanged: Path, words: list[str], results: str) -> None:
    done = flashcore("bench", "--suite", "suite", *words, cwd=unchanged.parent)
    assert done.returncode == Exit.USAGE and results in done.stderr, done.stderr


# --- on a GPU -----------------------------------------------------------------------------------

IDLE = 'extern "C" __global__ void idle_kernel(float* out) { out[threadIdx.x] = 1.0f; }\n\n'


@pytest.mark.gpu
def test_on_a_gpu_a_kernel_that_does_more_is_slower_and_other_code_of_the_same_speed_is_not(tmp_path: Path) -> None:
    folder = committed(tmp_path, TOY)
    slower, same = folder / "scale.cu", folder / "two_steps.cu"
    loop = "  for (int i = 0; i < 2000; ++i) factor = factor * 1.0f + (count < 0 ? 1.0f : 0.0f);\n  for ("
    slower.write_text(slower.read_text().replace("  for (", loop, 1))
    # Other machine code that costs nothing: a kernel that is never launched.
    same.write_text(same.read_text().replace('extern "C" __global__', f'{IDLE}extern "C" __global__', 1))
    both = "[pt][lw]*"  # plain, two_steps
    words = ("bench", "--against", "HEAD", "--suite", "suite", "--variant", both, "--samples", "10")
    done = flashcore(*words, "--format", "json=compared.json", cwd=tmp_path)
    compared = json.loads((tmp_path / "compared.json").read_text())
    assert done.returncode == Exit.FAILED, done.stdout + done.stderr
    assert fates(compared)["plain"] == "slower" and compared["processes"] == 9
    # So short a kernel may be too noisy to decide.
    assert fates(compared)["two_steps"] in ("no difference", "too small to matter", "faster", "undecided"), done.stdout

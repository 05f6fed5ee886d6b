"""The GitHub Action and the pre-commit hook: their own steps, run here as far as they go without GitHub."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.build import build
from flashcore.cli.main import parser
from flashcore.machine import toolchain
from flashcore.model.suite import TIERS
from flashcore.records import lookup, packed, store
from flashcore.suites.load import load
from tests import factory
from tests.conftest import ROOT
from tests.support.fatbins import both, library

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.slow
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}


def filled(text: str, inputs: dict[str, str]) -> str:
    """An expression of the workflow with the inputs put in, as GitHub does it; the install step was left out."""
    text = re.sub(r"\$\{\{ steps\.install\.outputs\.flashcore \|\| '(\w+)' \}\}", r"\1", text)
    text = re.sub(r"(\$\{\{ inputs\.base) \|\| github\.event\.pull_request\.base\.sha( \}\})", r"\1\2", text)
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: inputs[m[1]], text)


def step(name: str, folder: Path, inputs: dict[str, str], **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a step's script in ``folder``, as a runner does."""
    values = {k: str(v["default"]) for k, v in ACTION["inputs"].items()} | inputs
    settings = {k: filled(v, values) for k, v in STEPS[name].get("env", {}).items()}
    script = folder.parent / "step.sh"
    script.write_text(STEPS[name]["run"])
    here = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(folder.parent / "summary.md"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "RUNNER_TEMP": str(folder.parent),
        **settings,
        **env,
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def built(compiler: toolchain.Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of a former job, as the action's cache brings it back."""
    place = tmp_path_factory.mktemp("former")
    suite = load(example(place / "suite"))
    build.build(suite, place / "build", build.Options(), variants=[suite.variants["warp"]])
    return place / "build"


def example(folder: Path) -> Path:
    """A copy of the example suite, for one arch."""
    shutil.copytree(ROOT / "examples" / "row_softmax", folder, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = folder / "suite.toml"
    manifest.write_text(re.sub(r"(?m)^archs = .*$", 'archs = ["sm_80"]', manifest.read_text()))
    return folder


@pytest.fixture
def repository(tmp_path: Path, built: Path) -> Path:
    """A repository of somebody else's, with the example suite and nothing more."""
    shutil.copytree(built, tmp_path / "flashcore-build")
    root = tmp_path / "theirs"
    example(root / "kernels")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


ONE = {"arguments": "--variant warp"}


def test_the_gate_step_passes_and_reports_in_every_form(repository: Path) -> None:
    done = step("Gate", repository, ONE)
    assert done.returncode == 0, done.stderr
    assert "::error" not in done.stdout and "gate passed" in done.stdout
    made = {p.name for p in (repository / "flashcore-reports").iterdir()}
    assert made == {"gate.sarif", "gate.xml", "gate.json"}
    assert "✅" in (repository.parent / "summary.md").read_text()


def test_the_gate_step_fails_with_an_annotation_on_the_kernels_line(repository: Path) -> None:
    manifest = repository / "kernels" / "suite.toml"
    manifest.write_text(manifest.read_text().replace("max = 40", "max = 8"))
    done = step("Gate", repository, ONE)
    assert done.returncode == 1
    source = (repository / "kernels" / "warp.cu").read_text().splitlines()
    match = re.search(r"^::error file=kernels/warp\.cu,line=(\d+),title=", done.stdout, re.MULTILINE)
    assert match and "row_softmax_warp_kernel" in "".join(source[int(match[1]) - 2 : int(match[1])])
    assert "❌" in (repository.parent / "summary.md").read_text()
    assert json.loads((repository / "flashcore-reports" / "gate.json").read_text())["exit_code"] == 1


def test_the_gate_step_fails_if_the_pull_request_loosens_a_budget(repository: Path) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for words in (["add", "-A"], [*identity, "commit", "-qm", "base"]):
        subprocess.run(["git", "-C", str(repository), *words], check=True)
    manifest = repository / "kernels" / "suite.toml"
    manifest.write_text(manifest.read_text().replace("max = 40", "max = 255"))
    assert step("Gate", repository, ONE).returncode == 0, "no pull request"
    done = step("Gate", repository, {**ONE, "base": "HEAD"})
    assert done.returncode == 1
    assert re.search(r"^::error file=kernels/suite\.toml,line=1,.*≤ 40 → ≤ 255", done.stdout, re.MULTILINE), done.stdout
    done = step("Gate", repository, {**ONE, "base": "HEAD", "allow": "waiver:* budget:*"})
    assert done.returncode == 0
    assert step("Gate", repository, {**ONE, "base": "gone"}).returncode == 2
    assert STEPS["Gate"]["env"]["FLASHCORE_BASE"] == "${{ inputs.base || github.event.pull_request.base.sha }}"


def test_the_gate_step_audits_compiled_files_instead(repository: Path) -> None:
    for name in ("a", "b"):
        (repository / f"{name}.so").write_bytes(library(both()))
    limit = {"arguments": "--max spill_store_bytes=0 --except stack"}
    done = step("Gate", repository, {"audit": "a.so *.so", **limit})
    assert done.returncode == 1 and "::error title=flashcore%3A failed%3A max_spill_store_bytes::a/" in done.stdout
    assert {p.name for p in (repository / "flashcore-reports").iterdir()} == {"gate.sarif", "gate.xml", "gate.json"}
    assert step("Gate", repository, {"audit": "*.so", "arguments": "--max registers=32"}).returncode == 0
    lines = {"audit": "a.so\nb.so\n", "arguments": "--except stack\n--max spill_store_bytes=0\n"}
    done = step("Gate", repository, lines)
    assert done.returncode == 1 and "b/spills (sm_80, sm_90a)" in done.stdout
    assert step("Gate", repository, {"audit": "*.so"}).returncode == 3, "no limit"
    assert step("Gate", repository, {"audit": "*.whl", **limit}).returncode == 2
    (repository / "flashcore.toml").write_text('[audit]\nfiles = ["*.so"]\nmax = {registers = 31}\n')
    assert step("Gate", repository, {"audit": "flashcore.toml"}).returncode == 1


def test_a_runner_without_nvcc_exits_4(repository: Path) -> None:
    done = step("Gate", repository, ONE, NVCC=str(shutil.which("false")))
    assert done.returncode == 4
    assert "::error" not in done.stdout


def test_an_input_is_data_and_never_code(repository: Path) -> None:
    inputs = {"arguments": "$(touch owned) ; touch owned", "suite": "kernels; touch owned"}
    assert step("Gate", repository, inputs).returncode == 2
    assert not (repository / "owned").exists()
    assert all("${{" not in s.get("run", "") for s in STEPS.values())


@pytest.mark.parametrize("there", [True, False])
def test_the_gate_step_joins_the_artifact_or_refuses_what_is_none(repository: Path, there: bool) -> None:
    """The folder of a download; its run is of another suite, and so nothing of it counts."""
    records = repository / "a download"
    records.mkdir()
    folder = store.begin(repository / "runs", "20260102T030405Z-0001")
    store.write(replace(factory.record(), id="20260102T030405Z-0001"), folder)
    if there:
        (records / f"gpu{lookup.PACKED}").write_bytes(packed.packed(store.complete(folder)))
    done = step("Gate", repository, {**ONE, "records": "a download"})
    assert done.returncode == (0 if there else 2), done.stderr
    assert ("no measured run of row_softmax in" if there else "--records a download: expected a run") in done.stderr


def test_the_two_jobs_of_the_guide_take_inputs_and_commands_that_there_are() -> None:
    guide = (ROOT / "docs" / "how-to" / "gate-a-pull-request.md").read_text()
    jobs = yaml.safe_load(re.findall(r"```yaml\n(.+?)```", guide, re.DOTALL)[-1])["jobs"]
    assert list(jobs) == ["measure", "gate"] and jobs["gate"]["needs"] == "measure"
    (step,) = [s for s in jobs["gate"]["steps"] if "flashcore" in s.get("uses", "")]
    assert set(step["with"]) <= set(ACTION["inputs"]) and step["with"]["require"] in TIERS
    uploaded = [s["with"] for s in jobs["measure"]["steps"] if "upload-artifact" in s.get("uses", "")]
    downloaded = [s["with"] for s in jobs["gate"]["steps"] if "download-artifact" in s.get("uses", "")]
    assert uploaded[0]["name"] == downloaded[0]["name"] and downloaded[0]["path"] == step["with"]["records"]
    for words in (s["run"].split() for s in jobs["measure"]["steps"] if "run" in s):
        assert words[0] == "flashcore"
        arguments = parser(words[1:]).parse_args(words[1:])
        if arguments.command == "runs":
            assert arguments.output == uploaded[0]["path"] and arguments.output.endswith(lookup.PACKED)


@pytest.mark.parametrize(
    ("inputs", "extras"),
    [({}, "cuda,disassembler"), ({"audit": "*.so"}, "audit,disassembler"), ({"extras": "triton"}, "triton")],
)
def test_the_install_step_makes_an_environment_of_its_own(inputs: dict[str, str], extras: str, tmp_path: Path) -> None:
    """Its own words, on a runner whose paths have spaces; a stand-in for Python takes down what it is told."""
    runner = tmp_path / "run ner"
    (runner / "bin").mkdir(parents=True)
    (runner / "theirs").mkdir()
    python = runner / "bin" / "python3"
    python.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >> "$RUNNER_TEMP/told"\n'
        'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/pip"; fi\n'
    )
    python.chmod(0o755)
    done = step(
        "Install flashcore and CUDA's compiler", runner / "theirs", inputs,
        PATH=f"{runner / 'bin'}{os.pathsep}{os.environ['PATH']}", GITHUB_ACTION_PATH=str(runner / "the action"),
        GITHUB_OUTPUT=str(runner / "output"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = runner / "flashcore"
    listed = (runner / "told").read_text().splitlines()
    assert listed[:3] == ["-m", "venv", str(made)]
    assert listed[3] == "install"
    assert listed[-1] == f"{runner / 'the action'}[{extras}]"
    assert (runner / "output").read_text() == f"flashcore={made / 'bin' / 'flashcore'}\n"


def test_what_is_installed_has_no_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    installed = [*project["dependencies"], *extras["cuda"], *extras["disassembler"]]
    names = {re.split(r"[<>=]", line)[0] for line in installed}
    assert {"ninja", "pydantic", "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm"} <= names
    assert not names & {"torch", "numpy", "pandas", "plotly", "jinja2", "rich"}
    assert {"torch", "numpy", "nvidia-ml-py", "pandas", "jinja2", "nvtx", "rich"} == {
        re.split(r"[<>=]", line)[0] for line in extras["run"]
    }


def test_steps_of_others_are_pinned_and_take_only_what_there_is() -> None:
    """Nothing is uploaded that a machine which could not judge has not written."""
    uses = {s["uses"]: s for s in STEPS.values() if "uses" in s}
    assert all(re.fullmatch(r"[\w./-]+@v\d+", name) for name in uses)
    (upload,) = [s for name, s in uses.items() if "upload-sarif" in name]
    assert "hashFiles" in upload["if"] and upload["with"]["sarif_file"] == "${{ inputs.reports }}/gate.sarif"
    (cache,) = [s for name, s in uses.items() if "actions/cache" in name]
    assert cache["with"]["path"] == "${{ runner.temp }}/flashcore-build"
    python = cache["if"].strip("${} ").replace("!startsWith(github.event_name, ", "not event.startswith(")
    condition = compile(python.replace("github.event_name", "event").replace("&&", "and"), "if", "eval")
    events = ("push", "schedule", "pull_request", "pull_request_target", "merge_group")
    assert [event for event in events if eval(condition, {"event": event})] == ["push", "schedule"]
    assert '--build-dir "$RUNNER_TEMP/flashcore-build"' in STEPS["Gate"]["run"]


def test_the_gate_needs_nothing_but_pydantic(repository: Path) -> None:
    """The gate imports no package that the action does not install."""
    block = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'plotly', 'jinja2', 'numpy', 'nvtx'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import flashcore.machine.toolchain as t; t.torch_root = lambda: None\n"
        "from flashcore.cli.main import main; sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", block, "gate", "--suite", "kernels", "--variant", "warp"], cwd=repository,
        env={**os.environ, "PYTHONPATH": str(ROOT / "harness")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_hook_names_a_command_that_there_is() -> None:
    hook, audit = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "flashcore gate" and hook["pass_filenames"] is audit["pass_filenames"] is False
    assert audit["entry"] == "flashcore audit" and audit["always_run"] is True  # compiled files are rarely committed
    files = re.compile(hook["files"])
    for name in (
        "kernels/a.cu",
        "k/include/b.cuh",
        "suite.toml",
        "kernels/x/baseline.txt",
        "k/more/budgets.toml",
        "ops/k.py",
        "ops/tile.inl",
        "ops/tile.tcc",
        "ops/tile.ipp",
        "ops/host.cc",
        "ops/table.def",
        "k/recorded/scale.cubin",
        "k/recorded/plan.json",
    ):
        assert files.search(name)
    for name in ("README.md", "src/main.pyc", "notes/my_suite.toml.bak", "pyproject.toml"):
        assert not files.search(name)


def test_our_own_workflow_uses_what_is_here() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    (action_step,) = [step for job in jobs.values() for step in job["steps"] if step.get("uses") == "./"]
    assert (
        set(action_step["with"]) <= set(ACTION["inputs"])
        and (ROOT / action_step["with"]["suite"] / "suite.toml").is_file()
    )
    scripts = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert scripts == [".ci/run", ".ci/languages", ".ci/package"] and all(
        os.access(ROOT / script, os.X_OK) for script in scripts
    )

"""Fixtures of several tests: the toy suites, one build of the toy suite, and a clean environment."""

from __future__ import annotations

import atexit
import contextlib
import enum
import fcntl
import functools
import gc
import hashlib
import importlib
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import hypothesis
import pytest

from flashcore.build import build
from flashcore.errors import FlashcoreError
from flashcore.machine import gpu_choice, python_process, toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.files import file_hash, make_folder, write_atomically
from flashcore.model.record import Artifact, Record
from flashcore.model.suite import Suite, Variant
from flashcore.pipeline import plugins
from flashcore.readers.ncu.results import Report
from flashcore.records import lookup, store
from flashcore.stages.bench import timing
from flashcore.suites import load
from tests import forks
from tests.recorded import RECORDED

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

TESTS = Path(__file__).parent
ROOT = TESTS.parent
TOY = TESTS / "suites" / "toy"
FAULTS = TESTS / "suites" / "faults"
UPDATE = TESTS / "suites" / "update"

#: The variants of the faults suite whose launch plans fail without a GPU.
HOST_FAULTS = (
    "plan_refuses", "plan_null", "plan_hangs", "plan_prints", "plan_answers", "plan_shares", "plan_shares_too"
)  # fmt: skip


# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def _restored_environment() -> Iterator[None]:
    """What a test sets, or what it calls, must not decide what the next one sees."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """What a test writes need not outlive the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _published_runs_are_read_once() -> Iterator[None]:
    read, records = store.read, dict[str, Record]()

    def once(folder: Traversable) -> Record:
        if not (name := os.path.abspath(str(folder))).startswith(str(ROOT / "profiles")):
            return read(folder)
        if name not in records:
            records[name] = read(folder)
        return records[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "read", once)
        yield


@functools.cache
def published() -> Record:
    """The published run of the attention suite with times and counters."""
    return store.read(published_run("20261201T110251Z-5b8e"))


@functools.cache
def two_names() -> Record:
    """A run whose suite has the same problem under two names, of which some cases are faster on another GPU."""
    return store.read(lookup.find(ROOT / "profiles", str(ROOT / "tests" / "data" / "two_names.run.zip")))


def latest(places: lookup.Places, suite: str) -> Record | None:
    """The run of a suite with the times of most cases; of several, the newest."""
    runs = [run for run in lookup.measured_runs(places, suite) if run.samples]
    return max(runs, key=lambda run: len(run.samples), default=None)


def published_run(name: str) -> Traversable:
    """A run of ``profiles/``; its id may be shortened."""
    return lookup.find(ROOT / "profiles", name)


@pytest.fixture(scope="session", autouse=True)
def _reports_are_read_once() -> Iterator[None]:
    """A report of ncu is read by a process of its own, which takes most of a second to start; each is needed often, by
    each worker. A later run finds it too.
    """
    reader: Any = importlib.import_module("flashcore.features.reports.ncu_rep")
    code = [file_hash(Path(reader.__file__).with_name(name)) for name in ("ncu_rep.py", "report_child.py")]
    code.append(toolchain.version_of("ncu-report") or "")
    read, contents, place = reader.content, dict[str, Any](), ROOT / "build" / "tests" / "reports"

    def once(path: Path) -> Any:
        of = f"{python_process.command('reader')} {code} {file_hash(path)}"  # a test may have it fail
        kept = place / f"{hashlib.sha256(of.encode()).hexdigest()}.json"
        if of not in contents:
            if not kept.exists():
                content = json.dumps(read(path))
                make_folder(place)
                write_atomically(kept, content.encode())
            contents[of] = json.loads(kept.read_bytes())
        return contents[of]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "content", once)
        yield


@pytest.fixture(scope="session")
def sample_reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of reports of ncu 2025.3.1 on an H200: ``app_full``, ``app_basic``, ``app_graph``, ``triton_full``."""
    folder = tmp_path_factory.mktemp("reports")
    for path in (RECORDED / "reports").glob("*.ncu-rep"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="session")
def sample_report(sample_reports: Path) -> Callable[[str], Report]:
    """Reads one of them, once."""
    pytest.importorskip("ncu_report")
    reader = importlib.import_module("flashcore.features.reports.read")
    return functools.cache(lambda name: reader.read_report(sample_reports / f"{name}.ncu-rep"))


@pytest.fixture(scope="session")
def sample_record(sample_report: Callable[[str], Report]) -> Callable[[str], Record]:
    """One of them as a record."""
    assemble = importlib.import_module("flashcore.features.reports.assemble")
    return lambda name: assemble.record_of("20260101T000000Z-0000", [sample_report(name)])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests marked ``gpu`` where there is no GPU. Files that compile or start a browser come first: they
    take longest, and the last file of a run keeps one worker busy while the others are done.
    """
    if Gpu.find() is None:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="gpu: no CUDA GPU on this machine"))
    long = {item.path for item in items if {"compiler", "chromium"} & {*getattr(item, "fixturenames", ())}}
    items.sort(key=lambda item: item.path not in long)


# --- tests on a GPU -------------------------------------------------------------------------------
#
# Times are void while another process has a context on the GPU. Commands lease it while they measure, and so does each
# test that uses it otherwise: tests may run in parallel.

#: Python that runs before a command whose test has the GPU's lease: the command takes a lease of its own.
LEASED = "import os, tempfile\ntempfile.tempdir = os.path.abspath('tmp')\nos.makedirs(tempfile.tempdir, exist_ok=True)"
#: Set in the process of a test marked ``gpu(process=True)``.
IN_PROCESS = "FLASHCORE_TESTS_PROCESS"


def gpu_lease() -> contextlib.AbstractContextManager[None]:
    """Leases every GPU; nothing without one."""
    return gpu_choice.leases(gpu_choice.visible())


@pytest.fixture
def leased_gpu() -> Iterator[None]:
    with gpu_lease():
        yield


#: Stands in a script of :func:`leased_scripts` between its imports, which take seconds and no GPU, and the rest.
IMPORTED = "print('imported', flush=True); input()"


@contextlib.contextmanager
def leased_scripts(scripts: Mapping[Any, Sequence[str]]) -> Iterator[dict[Any, subprocess.Popen[str]]]:
    """Processes that run Python scripts (code and arguments) at the same time, with the GPU's lease. They go on from
    :data:`IMPORTED` once all of them are there.
    """
    with contextlib.ExitStack() as stack:
        running = {}
        for name, words in scripts.items():
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", *words], cwd=ROOT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            running[name] = stack.enter_context(process)
            stack.callback(process.kill)
        for process in running.values():
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "imported\n", line + process.communicate()[1]
        with gpu_lease():
            for process in running.values():
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            yield running
            for process in running.values():
                process.kill()
                process.wait()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test marked ``gpu(process=True)`` uses the GPU in its own process, which then ends, and with it the context."""
    marker = pyfuncitem.get_closest_marker("gpu")
    if marker is None or not marker.kwargs.get("process"):
        return None
    if IN_PROCESS in os.environ:
        pytest.importorskip("torch")  # before the lease: it takes seconds, and no GPU
        lease = contextlib.ExitStack()
        lease.enter_context(gpu_lease())
        atexit.register(lease.close)  # with this process ends its context
        return None
    config = pyfuncitem.config
    plugins = [word for name in ["no:xdist", "no:cacheprovider", *config.option.plugins] for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, pyfuncitem.nodeid]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=config.rootpath, env=environment | {IN_PROCESS: "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return True


class Lack(enum.StrEnum):
    """The requirements that a skip can name: each reason starts with one of these and a colon."""

    GPU = "gpu"
    HEADERS = "headers"  # that a script fetches from the network, or that only a CUDA toolkit has
    PACKAGE = "package"
    PLUGIN = "plugin"
    TOOL = "tool"


def refusal(reason: str, *, complete: bool) -> str:
    """Why a test may not be skipped for this reason; empty if it may.

    Args:
        complete: the environment has all that can be installed (``FLASHCORE_TESTS=complete``).
    """
    kind = "package" if reason.startswith("could not import ") else reason.partition(":")[0]
    if kind not in [*Lack]:
        return f"expected a skip's reason to start with one of {', '.join(Lack)} and a colon, found {reason!r}"
    if complete and kind not in (Lack.GPU, Lack.HEADERS):
        return f"expected all that can be installed, found a test skipped: {reason}"
    return ""


def _judge_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if refused := refusal(reason, complete=os.environ.get("FLASHCORE_TESTS") == "complete"):
            report.outcome, report.longrepr = "failed", refused


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _judge_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _judge_skip(report)
    return report


@pytest.fixture(scope="session")
def compiler() -> toolchain.Nvcc:
    """nvcc, g++, ninja and torch's headers, or a skip that says which is missing."""
    try:
        nvcc = toolchain.find_nvcc()
        _ = nvcc.cudart_static
        toolchain.find_cxx()
        toolchain.find_tool("ninja")
    except FlashcoreError as error:
        pytest.skip(f"tool: building needs more: {error}")
    if toolchain.torch_root() is None:
        pytest.skip("package: building operators needs torch's headers")
    return nvcc


#: nvcc's flags that have it read this instead of all of CUDA's headers.
SMALL_HEADER = f"-Xcompiler -include,{TESTS / 'sysroot' / 'kernel_language.h'}"


@pytest.fixture(scope="module")
def whole_cuda_headers() -> Iterator[None]:
    """For sources that call more than that declares."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NVCC_PREPEND_FLAGS", raising=False)
        yield


class StuckNvcc:
    """A compiler that never comes to its end, so that a build is caught at work however slow the machine is.

    Attributes:
        environment: has a build use it.
    """

    def __init__(self, nvcc: toolchain.Nvcc, folder: Path) -> None:
        self._script, self._started = folder / "nvcc", folder / "started"
        self._script.write_text(
            f'#!/bin/sh\ncase "$*" in *--version*|--dryrun*) exec "{nvcc.path}" "$@";; *--dryrun) exit 1;; esac\n'
            f': > "{self._started}"\nwhile [ -e "$0" ]; do sleep 0.1; done\nexit 1\n'
        )
        self._script.chmod(0o755)
        self.environment = {**python_process.environment(), "NVCC": str(self._script)}

    @property
    def has_started(self) -> bool:
        """Whether a build compiles with it."""
        return self._started.exists()

    def await_start(self, build: subprocess.Popen[str]) -> None:
        """Waits until the build compiles with it."""
        deadline = time.monotonic() + 300
        while not self.has_started:
            assert time.monotonic() < deadline and build.poll() is None
            time.sleep(0.02)

    def end(self) -> None:
        """Ends the remaining processes too."""
        self._script.unlink()


@pytest.fixture
def stuck_nvcc(compiler: toolchain.Nvcc, tmp_path: Path) -> Iterator[StuckNvcc]:
    (tmp_path / "stuck").mkdir()
    made = StuckNvcc(compiler, tmp_path / "stuck")
    yield made
    made.end()


class Built:
    """A suite, the folder it was built into and its outcome."""

    def __init__(self, loaded: Suite, folder: Path, artifacts: list[Artifact]) -> None:
        self.suite = loaded
        self.folder = folder
        self.artifacts = artifacts

    def of(self, variant: str, arch: str = "sm_90a") -> Artifact:
        """The artifact of one variant for one arch."""
        return next(a for a in self.artifacts if (a.variant, a.arch) == (variant, arch))


#: The packages that a build may import.
BUILDS = ("errors.py", "model", "chips", "suites", "readers", "records", "machine", "build")


def _sources(suites: Iterable[Path]) -> str:
    """A hash of what decides a build: the code that builds, the suites, the compilers, Python."""
    disassembler = toolchain.optional_tool("nvdisasm")  # a test may hide it
    tools = [*toolchain.compilers(toolchain.find_nvcc()), *filter(None, [disassembler])]
    stamps = [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in tools]
    digest = hashlib.sha256(f"{sys.version} {stamps}".encode())
    for place in (*(ROOT / "harness" / "flashcore" / name for name in BUILDS), *suites):
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"\0{file}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def kept_build(name: str, *suites: Path) -> Iterator[tuple[Path, bool]]:
    """A folder in ``build/tests`` that later runs find again, for a build of these sources; and whether this run has
    built there. What reads other headers or has another environment is for the build to compile again.

    Of a run's workers, the first that asks is told to build, the others wait. Each copies what it needs meanwhile.
    """
    place, run = ROOT / "build" / "tests" / name, os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    place.mkdir(parents=True, exist_ok=True)
    folder = place / _sources(suites)
    with (place / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        is_built = bool(run) and lock.read() == f"{folder.name} {run}"
        for other in place.glob("*/"):
            if other != folder:
                shutil.rmtree(other)
        folder.mkdir(exist_ok=True)
        lock.truncate(0)
        yield folder, is_built
        lock.write(f"{folder.name} {run}")


@pytest.fixture(scope="module")
def kept_folder(compiler: toolchain.Nvcc, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A build folder for tests of what a build makes, not of how; later runs find there what they need again."""
    file = request.path
    with kept_build(file.relative_to(TESTS).with_suffix("").as_posix().replace("/", "-"), file, TOY) as (folder, _):
        yield folder / "build"


def build_once(
    factory: pytest.TempPathFactory,
    loaded: Suite,
    variants: Iterable[Variant],
    *,
    name: str = "",
    archs: tuple[str, ...] = (),
    operator: bool = True,
    headers: str = SMALL_HEADER,
) -> Built:
    """A suite's build for this worker's tests: a copy of the kept one, which no other worker's test changes.

    Args:
        headers: nvcc's flag for other headers than CUDA's; empty for those.
    """
    folder = factory.mktemp(loaded.name) / "build"
    with kept_build(name or loaded.name, Path(loaded.root)) as (place, is_built):
        made, artifacts = place / "build", place / "artifacts.pickle"
        if not is_built:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("NVCC_PREPEND_FLAGS", headers)  # whoever asks first
                options = build.Options(archs=archs, operator=operator)
                new = build.build(loaded, made, options, variants=variants)
            kept = [replace(a, cached=True, seconds=None) if a.status == "ok" else a for a in new]
            artifacts.write_bytes(pickle.dumps(kept))
        shutil.copytree(made, folder)
        return Built(loaded, folder, [_moved(a, made, folder) for a in pickle.loads(artifacts.read_bytes())])


def _moved(artifact: Artifact, old: Path, new: Path) -> Artifact:
    """The artifact with the paths of its files in another build folder."""
    files = {name: getattr(artifact, name) for name in ("cubin", "log", "library", "plan_library")}
    return replace(artifact, **{name: path and path.replace(str(old), str(new)) for name, path in files.items()})


@pytest.fixture(scope="session")
def toy(compiler: toolchain.Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The toy suite, built once. Tests that change anything take a copy."""
    loaded = load.load(TOY)
    return build_once(tmp_path_factory, loaded, loaded.variants.values())


@pytest.fixture(scope="session")
def compiled(compiler: toolchain.Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two variants of the toy suite, built for one arch without the torch operator and SASS."""
    loaded = load.load(TOY)
    chosen = [loaded.variants[name] for name in ("plain", "two_steps")]
    with no_disassembler():
        return build_once(tmp_path_factory, loaded, chosen, name="compiled", archs=("sm_90a",), operator=False).folder


@pytest.fixture(scope="session")
def update(compiler: toolchain.Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sound variant of the suite with tensors that are input and output, strided, or absent, for one arch."""
    loaded = load.load(UPDATE)
    return build_once(tmp_path_factory, loaded, [loaded.variants["plain"]], archs=("sm_90a",))


@pytest.fixture(scope="session")
def faulty(compiler: toolchain.Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The variants that fail on the host, and a good one beside them; without the torch operator and SASS."""
    loaded = load.load(FAULTS)
    chosen = [loaded.variants[n] for n in ("good", "does_not_compile", "no_variant", *HOST_FAULTS)]
    with no_disassembler():
        return build_once(tmp_path_factory, loaded, chosen, operator=False)


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[], Path]:
    """Makes a copy of the toy suite to change."""

    def make() -> Path:
        return shutil.copytree(TOY, tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__"))

    return make


#: Python that a process runs first, so that it builds no operator.
NO_TORCH = "\nimport flashcore.machine.toolchain as t; t.torch_root = lambda: None\n"
#: The same for SASS, as :func:`hide_disassembler`.
NO_DISASSEMBLER = """
import flashcore.machine.toolchain as t
found = t.optional_tool
t.optional_tool = lambda name: None if name == "nvdisasm" else found(name)
"""


def hide_disassembler(patch: pytest.MonkeyPatch) -> None:
    """Hides nvdisasm, which takes a third of the time of a small compilation and says nothing of how one is built."""
    result = toolchain.optional_tool
    patch.setattr(toolchain, "optional_tool", lambda name: None if name == "nvdisasm" else result(name))


@contextlib.contextmanager
def no_disassembler() -> Iterator[None]:
    """Hides it meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        hide_disassembler(patch)
        yield


def compile_one(folder: Path, into: Path, glob: str = "*", arch: str = "sm_90a") -> Built:
    """Builds the variants of a suite that match, for one arch, without the torch operator and SASS."""
    loaded = load.load(folder)
    variants, _ = load.select(loaded, (glob,))
    options = build.Options(archs=(arch,), operator=False)
    with no_disassembler():
        artifacts = build.build(loaded, into, options, variants=variants)
    return Built(loaded, into, artifacts)


def flashcore(
    *words: str, cwd: Path, env: dict[str, str] | None = None, start: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own. ``start`` is Python that runs before it."""
    code = f"import sys\n{start}\nfrom flashcore.cli.main import main\nsys.exit(main())"
    environment = {
        **python_process.environment(),  # also keeps packages that were carried to a machine without them
        "PYTHONDONTWRITEBYTECODE": "1",
        **(env or {}),
    }
    recorded = forks.of(forks.COMMANDS)
    if recorded.can(environment):
        return recorded.run(["-c", code, *words], cwd, environment, timeout=600)
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    """The children of stages are forked from a process that has torch: its import takes longer than all they do."""
    pytest.importorskip("torch")
    with forks.supervised(forks.of(forks.KERNELS)):
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than cores: some tests wait for time limits, locks and pages."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_configure() -> None:
    """Sets the environment that every test process inherits, and loads the plugins.

    Without settings of the user's shell that would decide what a test sees.
    One thread: several that wait for each other take more than twice the processor's time, and no tensor here is large.
    This interpreter for stand-ins, whose "python3" may be a script that looks for one.
    A small header of CUDA's: to read all of them takes two thirds of the time of a small compilation. Not beside a GPU,
    whose tests compile what the small one does not declare.
    And interrupts: what is started in the background of a script ignores them, and so would all that is interrupted.
    """
    plugins.load()
    for name in ("CUDA_ARCH", "DEBUG", "VERBOSE", "MAX_JOBS", "FLASHCORE_OP_SUFFIX", "TRITON_CACHE_AUTOTUNING"):
        os.environ.pop(name, None)
    os.environ[timing.STAND_IN] = str(TESTS / "host_timer.py")
    os.environ["OMP_NUM_THREADS"] = "1"
    here, path = str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)
    if here not in path.split(os.pathsep):
        os.environ["PATH"] = f"{here}{os.pathsep}{path}"
    if not Path("/dev/nvidiactl").exists():
        os.environ["NVCC_PREPEND_FLAGS"] = SMALL_HEADER
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Of a run's workers, the first compiles the tests, which takes most of a new checkout's collection; the others
    find them compiled.
    """
    with contextlib.ExitStack() as stack:
        if not list((TESTS / "__pycache__").glob("test_*.pyc")):
            fcntl.flock(stack.enter_context(Path(__file__).open()), fcntl.LOCK_EX)
        gc.disable()  # nothing that is collected is garbage: to look for it takes a fifth of the time
        result = yield
    gc.freeze()  # what all tests find there is not looked through again and again
    gc.set_threshold(20_000, 50, 1_000)  # tests leave little garbage: to look for it took a fifth of the time
    gc.enable()
    return result


def pytest_unconfigure() -> None:
    forks.close()
    gc.collect()
    gc.freeze()  # pytest looks twice


def without_line(mistake: str) -> str:
    """A mistake of a manifest as ``file: key: …``, without the file where that is ``suite.toml``."""
    return re.sub(r"suite\.toml:\d+: |(?<=\.toml):\d+(?=: )", "", mistake)


Change = dict[str, Any]  # path → value, `...` for none


def change(data: dict[str, Any], changes: Change) -> None:
    """Sets the value at each path of nested tables and lists, or removes what is there."""
    for path, value in changes.items():
        *outer, last = (int(part) if part.isdecimal() else part for part in path.split("."))
        inner: Any = data
        for part in outer:
            inner = inner[part]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value

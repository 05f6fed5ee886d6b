"""Reads the kernels and launchers of a CUDA file without a compiler, and writes a suite around one of them."""

from __future__ import annotations

import functools
import json
import os
import re
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.errors import CapabilityError, UsageError
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.records.slugs import slug
from flashcore.suites.operator_schema import CPP_WORDS, TORCH_WORDS

_FORMS = {"suite.toml": "from_suite.toml.txt", "problem.py": "from_problem.py.txt", "launch.cu": "from_launch.cu.txt"}
#: Parentheses in parentheses, as deep as public code has them.
_PARENTHESES = functools.reduce(lambda inner, _: rf"\((?:[^()]|{inner})*\)", range(4), r"\([^()]*\)")
#: Comments, strings and preprocessor lines; attributes of kernels.
_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*'
    rf"|__(?:launch_bounds|cluster_dims|attribute)__\s*{_PARENTHESES}|\b__restrict__\b|\bvolatile\b",
    re.MULTILINE | re.DOTALL,
)
_HEAD = re.compile(r"\b(?!(?:if|for|while|switch)\b)(?P<name>\w+)\s*\((?P<parameters>(?:[^();{}]|\([^()]*\))*)\)\s*\{")
#: In a file that is CUDA even if it defines no kernel and no launcher.
_CUDA = re.compile(r'__global__|>>>\s*\(|#\s*include\s*[<"](cu|thrust|.*\.cuh)')
_BEFORE_TYPE = re.compile(r"[^\w:<>,=&*\s-]")
_TEMPLATE = re.compile(r"(\w+)\s*(?:=[^,>]*)?[,>]")
_COMMA = re.compile(r",(?![^<]*>)")  # outside of template arguments
_LAUNCHES = r"<<<|[lL]aunch\w*\s*\("
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\((?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_CONSTANT = re.compile(r"\bconst(?:expr)?\s+(?:unsigned\s+)?\w+\s+(\w+)\s*=\s*(\w+)\s*;")
#: Template arguments that mean the same anywhere in a file, as macros do.
_ARGUMENT = re.compile(
    r"-?\d\w*|true|false|float|double|(unsigned )?(int|char|short|long)|u?int\d+_t|half2?|\w+_bfloat16"
)
_PARAMETER = re.compile(r"\s*(?P<type>.*?[\s*&])(?P<name>\w+)\s*(=.*)?", re.DOTALL)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b[ \t]*(\w*)")
_ELSE: Mapping[bool | None, bool] = {True: False, False: True}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"\n]+)', re.MULTILINE)
_LIBRARIES = re.compile(r"^.(cublasLt|cublas|cufft|curand|cusparse|cusolver|cudnn|nccl|nvrtc)\w*\.h$")
#: C++ types of numbers, and torch's dtypes of tensors, by a part of the name; the first that fits.
_KINDS = {"cudaStream_t": "stream", "float": "float", "double": "float", "bool": "bool"}
_KINDS |= dict.fromkeys(("int", "unsigned", "size_t", "long", "short", "char"), "int")
_DTYPES = {"bfloat16": "bfloat16", "half": "float16", "double": "float64", "int": "int32", "char": "int8"}
#: In the first shape, without knowing better.
_VALUES = {"int": "1024", "float": "1.0", "bool": "true", "size of a block": "32"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its C++ type, its name, and its kind in a schema; an operator cannot have one without a kind."""

    cpp: str
    name: str

    @property
    def kind(self) -> str:
        if "*" in self.cpp:
            return "Tensor" if self.cpp.count("*") == 1 else ""
        return next((kind for part, kind in _KINDS.items() if part in self.cpp), "")

    @property
    def is_output(self) -> bool:
        """Whether it points to what may be written: ``float* const``, but not ``const float*``."""
        return self.kind == "Tensor" and "const" not in self.cpp.partition("*")[0]


@dataclass(frozen=True, slots=True)
class CudaFunction:
    """A kernel, or a host function that launches kernels; ``template`` are the names of its template's parameters."""

    name: str
    parameters: tuple[Parameter, ...]
    is_kernel: bool
    template: tuple[str, ...] = ()

    @property
    def guesses(self) -> int:
        """How much of a call must be guessed: nothing of a launcher on a given stream; 3 is too much."""
        kinds = [p.kind for p in self.parameters]
        if self.template or "" in kinds or not any(p.is_output for p in self.parameters):
            return 3
        return 1 if self.is_kernel else 0 if "stream" in kinds else 2

    def instantiated(self, arguments: str) -> CudaFunction:
        """The function with the first template arguments in its parameters' types."""
        parameters = self.parameters
        for name, argument in zip(self.template, _COMMA.split(arguments), strict=False):
            parameters = tuple(replace(p, cpp=re.sub(rf"\b{name}\b", argument.strip(), p.cpp)) for p in parameters)
        return replace(self, parameters=parameters)


@dataclass(frozen=True, slots=True)
class _Signature:
    """An operator's arguments, tensors first and outputs last of them; the dtype of each tensor; the outputs."""

    arguments: Mapping[str, Parameter]
    dtypes: Mapping[str, str]
    outputs: Sequence[str]

    @staticmethod
    def of(function: CudaFunction) -> _Signature:
        parameters = [p for p in function.parameters if p.kind not in ("", "stream")]
        if not any(p.is_output for p in parameters):  # a schema has one
            parameters.append(_OUTPUT)
        tensors = [p for p in parameters if p.kind == "Tensor"]
        written = [p for p in tensors if p.is_output]
        if written == tensors:
            written = written[-1:]
            if len(tensors) == 1:  # a schema starts with an input
                parameters.append(_LIKE)
        named: dict[str, Parameter] = {}
        for p in parameters:
            name = _name(p.name)
            while name in named:  # n and N
                name += "_2"
            named[name] = p
        dtypes = {
            name: next((dtype for part, dtype in _DTYPES.items() if part in p.cpp), "float32")
            for name, p in named.items()
            if p.kind == "Tensor"
        }
        outputs = [name for name, p in named.items() if p in written]
        arguments = dict(sorted(named.items(), key=lambda item: (item[0] not in dtypes, item[0] in outputs)))
        return _Signature(arguments, dtypes, outputs)

    @property
    def words(self) -> dict[str, str]:
        """What the forms of a suite's files say of it."""
        outputs, scalars = self.outputs, {n: p for n, p in self.arguments.items() if n not in self.dtypes}
        return {
            "schema": ", ".join(
                f"{p.kind}{f'({chr(97 + outputs.index(n))}!)' if n in outputs else ''} {n}"
                for n, p in self.arguments.items()
            ),
            "dims": ", ".join(f'{name} = ["SIZE"]' for name in self.dtypes),
            "dtypes": ", ".join(f'{name} = "{dtype}"' for name, dtype in self.dtypes.items()),
            "params": "".join(
                f", {n} = {_VALUES['size of a block' if 'block' in n else p.kind]}" for n, p in scalars.items()
            ),
            "inputs": "\n".join(
                f'        "{n}": ' + (f'params["{n}"],' if n in scalars else f"tensor(torch.{self.dtypes[n]}),")
                for n in self.arguments
                if n not in outputs
            ),
            "outputs": ", ".join(outputs),
        }


_INPUT = Parameter("const float*", "x")
_LIKE = Parameter("const float*", "like")
_OUTPUT = Parameter("float*", "out")
_UNKNOWN = CudaFunction("", (_INPUT, _OUTPUT), is_kernel=False)


def functions(text: str) -> Iterator[CudaFunction]:
    """The kernels and the launchers that a file defines, in order."""
    macros = [macro[1] for macro in _MACRO.finditer(text) if re.search(_LAUNCHES, macro[0])]
    launches = re.compile("|".join((_LAUNCHES, *(rf"\b{name}\b" for name in macros))))
    text = _NOISE.sub(" ", text)
    end = 0
    for head in _HEAD.finditer(text):
        if head.start() < end:
            continue
        kind = _BEFORE_TYPE.split(text[end : head.start()])[-1]
        end, depth = head.end(), 1
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        is_kernel = "__global__" in kind
        if is_kernel or (head["name"] != "main" and launches.search(text, head.end(), end)):
            parts = filter(None, map(_PARAMETER.fullmatch, _COMMA.split(head["parameters"])))
            parameters = tuple(Parameter(" ".join(p["type"].split()).rstrip("&"), p["name"]) for p in parts)
            template = _TEMPLATE.findall(kind) if "template" in kind else ()
            yield CudaFunction(head["name"], parameters, is_kernel, tuple(template))


def _as_launched(function: CudaFunction, text: str, macros: Collection[str]) -> CudaFunction:
    """A template with the arguments of its first launch in the text, if they mean the same elsewhere."""
    if not function.template:
        return function
    launch = re.search(rf"\b{function.name}\s*<([^<>]*)>\s*<<<", text)
    constants = dict(_CONSTANT.findall(text))
    words = map(str.strip, launch[1].split(",")) if launch else ()
    arguments = [constants.get(word, word) for word in words]
    if not arguments or not all(_ARGUMENT.fullmatch(x) or x in macros for x in arguments):
        return function
    whole = ", ".join(arguments)
    return replace(function.instantiated(whole), name=f"{function.name}<{whole}>", template=())


def _chosen(file: Path, texts: Mapping[Path, str], macros: Collection[str], launcher: str) -> tuple[CudaFunction, str]:
    """The function to call, and the names of those to choose from: the file's and those of the headers next to it.

    Without a launcher, the headers' are chosen only if none of the file can be called."""
    near = [text for path, text in texts.items() if path.parent == file.resolve().parent]
    every = [[*functions(text)] for text in near]
    names = ", ".join(dict.fromkeys(f.name for of_text in every for f in of_text))
    name = launcher.partition("<")[0].rpartition(":")[2]
    named = [f for of_text in every for f in of_text if f.name == name]
    if launcher and not named:
        raise UsageError(f"--launcher {launcher}: expected a kernel or launcher of {file}, found {names or 'none'}")
    callable_ = ([g for f in of_text if (g := _as_launched(f, near[0], macros)).guesses < 3] for of_text in every)
    chosen = named or next(filter(None, callable_), [])
    function = min(chosen, key=lambda f: f.guesses, default=_UNKNOWN)
    return function.instantiated(launcher.partition("<")[2].removesuffix(">")), names


def suite_files(file: Path, folder: Path, launcher: str) -> dict[str, str]:
    """The texts of a suite's files around a CUDA file, which stays where it is.

    Args:
        launcher: the function to call, with its template arguments; empty: the one that leaves least to guess.

    Raises:
        UsageError: the file is no CUDA, cannot be read or included, or has no such function.
    """
    if file.suffix == ".py":
        hint = "hint: a Triton kernel needs no wrapper: docs/how-to/gate-a-triton-kernel.md"
        raise UsageError(f"--from {file}: expected a CUDA file, found Python\n  {hint}")
    try:
        texts = _texts(file.resolve(), {})
    except OSError as error:
        raise UsageError(f"--from {file}: expected a CUDA file, found {error.strerror}") from error
    path = os.path.relpath(file.resolve(), folder.resolve())
    if not path.isprintable() or {'"', "\\"} & {*path}:
        raise UsageError(f"--from {file}: expected a path that #include can name, found {path!r}\n  hint: rename it")
    is_cuda = any(map(_CUDA.search, texts.values()))
    defined = {name for text in texts.values() for name in _DEFINE.findall(text)}
    texts = {path: _compiled(text, defined) for path, text in texts.items()}
    included = dict.fromkeys(name for text in texts.values() for name in _INCLUDE.findall(text))
    function, names = _chosen(file, texts, defined, launcher)
    if not names and not is_cuda:
        hint = "hint: name the file that defines it"
        raise UsageError(f"--from {file}: expected a CUDA file with a kernel or launcher, found none\n  {hint}")
    signature = _Signature.of(function)
    stem = _name(file.stem)
    folders = dict.fromkeys(_folder(name, file.resolve()) for name in included)
    keys = {
        "include": [os.path.relpath(f, folder.resolve()) for f in folders if f != file.resolve().parent],
        "libraries": [*dict.fromkeys(library for name in included for library in _LIBRARIES.findall(name))],
        "packages": ["torch"] * any(re.match(".(torch|ATen|c10)/", name) for name in included),
    }
    values = {
        "name": stem,
        "file": file.name,
        "path": path,
        "names": names or "none",
        "define": "#include <stdexcept>\n" * (not function.name)
        + f"#define TORCH_EXTENSION_NAME {stem}\n" * bool(keys["packages"]),
        "call": _call(function, signature.arguments, launcher),
        "nvcc": _release(),
        "arch": _arch(),
        "keys": "".join(f"{key} = {json.dumps(words, ensure_ascii=False)}\n" for key, words in keys.items() if words),
        **signature.words,
    }
    forms = {name: Path(__file__).with_name(form).read_text(encoding="utf-8") for name, form in _FORMS.items()}
    return {name: string.Template(form).substitute(values) for name, form in forms.items()}


def _texts(file: Path, texts: dict[Path, str]) -> dict[Path, str]:
    """The texts of a file and of the headers that come with it, as it includes them, the file's first."""
    texts[file] = file.read_text(encoding="utf-8", errors="replace")
    for name in _INCLUDE.findall(texts[file]):
        if (header := _folder(name, file) / name[1:]).is_file() and header not in texts:
            _texts(header, texts)
    return texts


@functools.cache
def _folder(name: str, file: Path) -> Path:
    """The folder to search for a header: beside the file, as in a clone of CUTLASS or of CUDA's samples, or in any
    folder of the nearest parents if the file includes its own headers by this name, in quotes."""
    for distance, up in enumerate(file.parents):
        for sub in ("", "include", "tools/util/include", "Common"):
            if (up / sub / name[1:]).is_file():
                return up / sub
        if name.startswith('"') and 0 < distance < 4:
            for header in sorted(up.glob(f"*/{name[1:]}")):
                return header.parents[name.count("/")]
    return file.parent


def _compiled(text: str, defined: Collection[str]) -> str:
    """The text without what only another macro than the defined ones, or nothing, would compile."""
    lines = []
    states: list[bool | None] = []  # of each condition around the line: whether it holds, if that is known
    for line in text.split("\n"):
        match = _CONDITION.match(line)
        if match is None:
            lines.append("" if False in states else line)
        elif match[1] == "endif":
            del states[-1:]
        elif match[1].startswith("e"):
            states[-1:] = [_ELSE.get(state) if match[1] == "else" else None for state in states[-1:]]
        elif match[2] == "__CUDACC__" and match[1] in ("ifdef", "ifndef"):  # of nvcc, in host and device code
            states.append(match[1] == "ifdef")
        elif match[1] == "ifdef" and not match[2].startswith("_"):
            states.append(match[2] in defined)
        else:
            states.append(False if match[2] == "0" else None)
    return "\n".join(lines)


def _call(function: CudaFunction, arguments: Mapping[str, Parameter], launcher: str) -> str:
    """The statement that launches."""
    if not function.name:
        return (
            'throw std::invalid_argument("launch.cu calls no kernel yet: init --launcher NAME, or write it");  // TODO'
        )
    members = {p: f"({p.cpp})a.{name}" for name, p in arguments.items()}
    given = ", ".join("stream" if p.kind == "stream" else members.get(p, "{}") for p in function.parameters)
    missing = ", ".join(p.name for p in function.parameters if not p.kind)
    launch = "<<<flashcore::ceil_div(s.SIZE, 256), 256, 0, stream>>>  // TODO: its grid and block\n      "
    call = f"{launcher or function.name}{launch if function.is_kernel else ''}({given});"
    return call + f"  // TODO: pass {missing}" * bool(missing)


def _name(text: str) -> str:
    """A name that schemas, C++ and torch allow."""
    name = slug(text)
    return f"a_{name}" if name in CPP_WORDS | TORCH_WORDS else name


def _release() -> str:
    try:
        return toolchain.find_nvcc().release
    except CapabilityError:
        return "13.0"


def _arch() -> str:
    gpu = Gpu.find()
    number = "{}{}".format(*gpu.capability) if gpu else "90"
    return f"sm_{number}{'a' if int(number) >= 90 else ''}"

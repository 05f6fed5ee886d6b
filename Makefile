# `make` alone lists the targets. Each target installs its requirements.
#
#   VENV=.venv      the virtual environment to create; `make profile VENV=` uses the current one
#   SUITE=DIR       another suite                 VARIANT=GLOB  only these variants
#   SHAPE=NAME      only this shape               RUN=ID        a recorded run (report, gate)
#   CUDA_ARCH=8.9   only this arch                DEBUG=1       -G build, never timed
#   VERBOSE=1       show the compiler's commands  ARGS="..."    more arguments for the command

VENV   ?= .venv
SUITE  ?= kernels/attention
PYTHON ?= python3

ifeq ($(VENV),)
  PY    := $(PYTHON)
  READY :=
  DEV   :=
else
  PY    := $(VENV)/bin/python
  READY := $(VENV)/.ready
  DEV   := $(VENV)/.dev
endif

# `-P` keeps Python from importing modules of the current folder.
FLASHCORE = $(if $(VENV),$(VENV)/bin/flashcore,PYTHONPATH="$(CURDIR)/harness$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -P -m flashcore)
FILTER    = $(foreach name,$(VARIANT),--variant '$(name)') $(foreach name,$(SHAPE),--shape $(name))
SELECT    = --suite $(SUITE) $(FILTER)

# Tests start hundreds of processes, which would otherwise compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help profile build check bench sanitize report gate roofs introspect list doctor test test-all pytest lint types style imports size docs ladder screenshots fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+%?:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

profile: $(READY) ## build, check, bench, profile, record, report, gate (2 minutes the first time, on 2 cores without a GPU)
	$(FLASHCORE) profile $(SELECT) $(ARGS)

build: $(READY) ## compile every variant; print registers, spills, shared memory, occupancy
	$(FLASHCORE) build $(SELECT) $(ARGS)

check: $(READY) ## check every variant's results (needs a GPU)
	$(FLASHCORE) check $(SELECT) $(ARGS)

bench: $(READY) ## check and time every variant (needs a GPU)
	$(FLASHCORE) bench $(SELECT) $(ARGS)

sanitize: $(READY) ## run every variant under compute-sanitizer (needs a GPU)
	$(FLASHCORE) sanitize $(SELECT) $(ARGS)

report: $(READY) ## render a recorded run (RUN=, default: the newest)
	$(FLASHCORE) report $(RUN) $(ARGS)

gate: $(READY) ## check the present sources (or RUN=) against the suite's budgets
	$(FLASHCORE) gate $(if $(RUN),$(RUN) $(FILTER),$(SELECT)) $(ARGS)

roofs: $(READY) ## measure this machine's roofs (needs a GPU)
	$(FLASHCORE) roofs $(ARGS)

introspect: $(READY) ## write this GPU's fragment table into the attention suite (needs a GPU)
	$(PY) -P kernels/attention/introspect_fragments.py $(ARGS)

list: $(READY) ## list variants, shapes and budgets
	$(FLASHCORE) list --suite $(SUITE) $(ARGS)

doctor: $(READY) ## report which stages this machine supports, and how to fix the others
	$(FLASHCORE) doctor

# Tests and mypy run in parallel: without a cache, mypy needs one core for most of a minute.
test: style size ## lint, type check and test; leaves out the tests marked `slow` (6 minutes the first time, on 2 cores)
	@$(MAKE) --no-print-directory -j2 types pytest MARKED='-m "not slow"'

test-all: style size ## lint, type check and run every test, those of benchmarks/ too (.ci/run does)
	@$(MAKE) --no-print-directory -j2 types pytest
	$(PYTEST) benchmarks

lint: style types ## ruff, mypy --strict, the import contract

# One worker per file, so that a file's fixtures are created once.
PYTEST = $(PY) -m pytest -q -n auto --dist loadfile --no-loadscope-reorder
pytest: $(DEV)
	$(PYTEST) $(MARKED) $(ARGS)

types: $(DEV) # prints all output at once, since pytest prints at the same time
	@output=$$($(PY) -m mypy 2>&1); code=$$?; printf '\nmypy: %s\n' "$$output"; exit $$code

style: $(DEV) imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

imports: $(DEV) ## check only the import contract
	PYTHONPATH="$$(echo harness extensions/*/src | tr ' ' :)" $(PY) -c "from importlinter.cli import lint_imports_command as main; main()" --no-cache

size: $(READY) ## tokens of each package, and their limits (ARGS=--write lowers the limits to the present figures)
	@$(PY) tools/size.py $(ARGS)

docs: $(DEV) ## build the documentation into docs/_build, without a network; warnings are errors
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build

ladder: $(DEV) ## generate kernels/attention/README.md from the manifest and a recorded run (RUN=, default: the newest)
	mkdir -p build && $(PY) docs/ladder.py $(RUN) > build/ladder.md && mv build/ladder.md kernels/attention/README.md

screenshots: $(DEV) ## generate the documentation's pictures from a recorded run (RUN=, default: the newest; needs Chromium)
	$(PY) -m docs.screenshots $(RUN)

fuzz: $(DEV) ## read 100,000 mutated CSVs, manifests, records and journals; each must be read or refused with a typed error
	FLASHCORE_FUZZ=$${FLASHCORE_FUZZ:-100000} $(PY) -m pytest -q tests/fuzz -n auto --dist load $(ARGS)

bench-%: $(DEV) ## a benchmark of benchmarks/, such as bench-mutants; benchmarks/results/README.md lists them (ARGS=--help)
	$(PY) -m benchmarks.$* $(ARGS)

clean: ## remove builds and rendered reports; recorded runs stay
	rm -rf build .pytest_cache .mypy_cache .ruff_cache
	find reports -mindepth 1 ! -name README.md ! -name .gitignore -delete

# --- the environment --------------------------------------------------------------------------------

# Torch only for an NVIDIA GPU; nvcc and nvdisasm only if this machine lacks them.
CUDA_BIN = $${CUDA_HOME:-/usr/local/cuda}/bin
PIP      = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(VENV)/.ready: pyproject.toml constraints.txt
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@extras=report,watch; ! nvidia-smi -L >/dev/null 2>&1 || extras=run; \
	command -v nvcc >/dev/null || test -x "$(CUDA_BIN)/nvcc" || test -n "$$NVCC" || extras=$$extras,cuda; \
	command -v nvdisasm >/dev/null || test -x "$(CUDA_BIN)/nvdisasm" || extras=$$extras,disassembler; \
	echo "$(VENV): installing flashcore[$$extras], once"; \
	$(PIP) -e ".[$$extras]"
	touch $@

$(VENV)/.dev: $(VENV)/.ready
	@echo "$(VENV): installing the tools of the tests and the documentation; a minute, once"
	$(PIP) -e '.[run,dev]'
	touch $@

# `make` alone lists the targets. Each target sets up what it needs.
#
#   VENV=.venv      the virtual environment that is made; `make profile VENV=` uses this Python as it is
#   SUITE=DIR       another suite                 VARIANT=GLOB  only these variants
#   SHAPE=NAME      only this shape               RUN=ID        a recorded run (report, gate)
#   CUDA_ARCH=8.9   only this arch                DEBUG=1       -G build, never timed
#   VERBOSE=1       show the compiler's commands  ARGS="..."    anything else for the command

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

# `-P`: nothing is imported from the current folder by mistake.
FLASHCORE = $(if $(VENV),$(VENV)/bin/flashcore,PYTHONPATH="$(CURDIR)/harness$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -P -m flashcore)
SELECT    = --suite $(SUITE) $(if $(VARIANT),--variant '$(VARIANT)') $(if $(SHAPE),--shape $(SHAPE))

.PHONY: help profile build check bench sanitize report gate roofs introspect list doctor test pytest lint types style imports docs ladder screenshots clean bench-build bench-profile bench-loop bench-gate bench-crosscheck bench-regimes bench-against bench-frames bench-search fuzz bench-mutants bench-gpus bench-kills bench-mutation mutation bench-report

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

profile: $(READY) ## all of it: build, check, bench, profile, record, report, gate
	$(FLASHCORE) profile $(SELECT) $(ARGS)

build: $(READY) ## compile every variant; print registers, spills, shared memory, occupancy
	$(FLASHCORE) build $(SELECT) $(ARGS)

check: $(READY) ## prove every variant right (needs a GPU)
	$(FLASHCORE) check $(SELECT) $(ARGS)

bench: $(READY) ## check and time every variant (needs a GPU)
	$(FLASHCORE) bench $(SELECT) $(ARGS)

sanitize: $(READY) ## every variant under compute-sanitizer: memcheck, racecheck (needs a GPU)
	$(FLASHCORE) sanitize $(SELECT) $(ARGS)

report: $(READY) ## render a recorded run (RUN=, default the newest)
	$(FLASHCORE) report $(RUN) $(ARGS)

gate: $(READY) ## judge the present sources (or RUN=) by the suite's budgets
	$(FLASHCORE) gate $(RUN) $(SELECT) $(ARGS)

roofs: $(READY) ## measure what this machine can really do (needs a GPU)
	$(FLASHCORE) roofs $(ARGS)

introspect: $(READY) ## ask this GPU for its fragment table, and write it into the attention suite (needs a GPU)
	$(PY) -P kernels/attention/introspect_fragments.py $(ARGS)

list: $(READY) ## list variants, shapes and budgets
	$(FLASHCORE) list --suite $(SUITE) $(ARGS)

doctor: $(READY) ## say what this machine can do, and how to fix what it cannot
	$(FLASHCORE) doctor

# The tests and the types side by side: mypy keeps one core busy for most of a minute when it has no cache.
test: style ## lint, type check and test
	@$(MAKE) --no-print-directory -j2 types pytest

lint: style types ## ruff, mypy --strict, the import contract

pytest: $(DEV) # a file is one worker's: what its tests share is made once
	$(PY) -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

types: $(DEV) # all that it says at once, since the tests may be talking
	@said=$$($(PY) -m mypy 2>&1); code=$$?; printf '\nmypy: %s\n' "$$said"; exit $$code

style: $(DEV) imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

imports: $(DEV) ## the import contract alone: who may import whom
	PYTHONPATH="$(CURDIR)/harness" $(PY) -c "from importlinter.cli import lint_imports_command as main; main()" --no-cache

docs: $(DEV) ## the documentation, strictly and without a network, into docs/_build
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build

ladder: $(DEV) ## kernels/attention/README.md, from the manifest and a recorded run (RUN=, default the newest)
	mkdir -p build && $(PY) docs/ladder.py $(RUN) > build/ladder.md && mv build/ladder.md kernels/attention/README.md

screenshots: $(DEV) ## the pictures of the documentation, from a recorded run (RUN=, default the newest; needs Chromium)
	$(PY) -m docs.screenshots $(RUN)

bench-build: $(READY) ## clean build of all variants, against torch.utils.cpp_extension.load
	$(PY) -m benchmarks.build --suite $(SUITE) $(ARGS)

bench-profile: $(READY) ## the profile stage, against a bare ncu on the same launches (needs a GPU)
	$(PY) -m benchmarks.profile --suite $(SUITE) $(ARGS)

bench-loop: $(READY) ## one kernel edited, to its answers; ARGS=--clean: all variants too (needs a GPU for its targets)
	$(PY) -m benchmarks.loop --suite $(SUITE) $(ARGS)

bench-gate: $(READY) ## the gate: nothing changed, one kernel changed, ten thousand cases
	$(PY) -m benchmarks.gate --suite $(SUITE) $(ARGS)

bench-crosscheck: $(READY) ## the bench stage's stopwatch, against nvbench's (needs a GPU and cuda-bench)
	$(PY) -m benchmarks.crosscheck --suite $(SUITE) $(ARGS)

bench-regimes: $(READY) ## the timing regimes, against kernels of a known length (needs a GPU, sm_90 or newer)
	$(PY) -m benchmarks.regimes $(ARGS)

bench-against: $(READY) ## the timing gate: false alarms, planted slowdowns found (needs a GPU, five minutes)
	$(PY) -m benchmarks.against --suite $(SUITE) $(ARGS)

bench-search: $(DEV) ## samplers and Kernel Tuner on recorded spaces (needs no GPU; pip install kernel-tuner)
	$(PY) -m benchmarks.search $(ARGS)

bench-frames: $(READY) ## frames and exports of the recorded runs and of a synthetic one
	$(PY) -m benchmarks.frames $(ARGS)

bench-mutants: $(READY) ## can the gate be fooled: mutants of a suite, made by machine (15 minutes, no GPU)
	$(PY) -m benchmarks.mutants $(ARGS)

fuzz: $(DEV) ## 100,000 mutated CSVs, manifests, records and journals: each read, or refused with an error of ours
	FLASHCORE_FUZZ=$${FLASHCORE_FUZZ:-100000} $(PY) -m pytest -q tests/fuzz -n auto --dist load $(ARGS)

bench-kills: $(DEV) ## kills real processes at random moments, and looks at what they left (ARGS=--gpu: inside ncu)
	$(PY) -m benchmarks.kills $(ARGS)

bench-gpus: $(DEV) ## many GPUs: what sharing costs, kills of workers and nodes of a Ray cluster (pip install ray; ARGS=--gpu: one GPU against all)
	$(PY) -m benchmarks.gpus $(ARGS)

mutation: bench-mutation
bench-mutation: $(DEV) ## mutants of our own code against its modules' tests (ARGS="--sample 300 --seed 1")
	$(PY) -c "import cosmic_ray" || $(PY) -m pip install --quiet --disable-pip-version-check -e '.[mutation]'
	$(PY) -m benchmarks.mutation $(ARGS)

bench-report: $(DEV) ## the report: sizes, loading, labels, accessibility, against what they must be (needs Chromium)
	$(PY) -m benchmarks.report $(ARGS)

clean: ## remove what was built and rendered; recorded runs stay
	rm -rf build .pytest_cache .mypy_cache .ruff_cache
	find reports -mindepth 1 ! -name README.md ! -name .gitignore -delete

# --- the environment --------------------------------------------------------------------------------

# Where no nvcc is found, CUDA's compiler comes from pip; nvdisasm likewise.
$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[run]'
	@if command -v nvcc >/dev/null || test -x "$${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" || test -n "$$NVCC"; then \
	  echo "nvcc: found"; \
	else \
	  echo "nvcc: none found, installing CUDA's compiler from pip"; \
	  $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cuda]'; \
	fi
	@if command -v nvdisasm >/dev/null || test -x "$${CUDA_HOME:-/usr/local/cuda}/bin/nvdisasm"; then :; else \
	  $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[disassembler]'; \
	fi
	touch $@

$(VENV)/.dev: $(VENV)/.ready
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

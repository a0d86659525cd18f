# The two commands: `make run` sets everything up and serves the starter model, `make test` checks everything.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MODEL ?= smollm2-135m
# One more than the cores of a small machine: tests wait for servers and pauses a third of their time.
JOBS ?= 3
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run install dev check help-pages format test fast bench with-node ui ui-dev clean help \
  lint types page-types help-check chromium

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: install ## install, fetch the starter model and serve it
	$(BIN)/mashbox pull $(MODEL)
	$(BIN)/mashbox run $(MODEL) --ui

install: $(VENV)/.installed ## make the virtual environment and install mashbox
dev: $(VENV)/.dev ## the same with what development needs

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'mashbox needs Python 3.11 or newer; name one with: make run PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo 'Python has no venv module; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }

# What the install builds: the kernels and the chat page. Each looks by itself whether that is done.
BUILT := hatch_build.py $(wildcard mashbox/engine/worker/kernels/cpu/*.[ch]*) \
  $(filter-out %.lock,$(wildcard mashbox/ui/*.*)) \
  $(shell find mashbox/ui/src -type f)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt $(BUILT)
	@echo 'Installing mashbox and torch into $(VENV), building kernels and chat page: a minute or two ...'
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

# All at once: an install a second time would build the package a second time. Python files are compiled on all cores.
$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt $(BUILT)
	@echo 'Installing mashbox, torch and what development needs into $(VENV), building kernels and chat page ...'
	$(PIP) install --quiet --no-compile -c constraints.txt -e '.[dev]'
	@$(BIN)/python -W ignore -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1 || true
	@touch $(VENV)/.installed $@

CHECKS := lint types page-types help-check
check: dev ## formatting, lint, types, help pages
	@$(MAKE) --no-print-directory -j2 --output-sync=target $(CHECKS)

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: dev
	$(BIN)/mypy

page-types: dev
	$(BIN)/python -m mashbox.ui.build check

help-check: dev
	$(BIN)/python docs/help_pages.py --check

chromium:
	@packaging/chromium.sh

help-pages: dev ## write docs/help.md from the commands
	$(BIN)/python docs/help_pages.py

format: dev ## put the formatting right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: dev ## everything: checks, then all tests
	@$(MAKE) --no-print-directory -j2 --output-sync=target chromium $(CHECKS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Here a process of tests works nearly all the time, and each imports what all of them need.
fast: JOBS = 2
fast: dev ## the tests for the loop while you work
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m 'not slow and not real' -q --hypothesis-profile fast

bench: install ## figures against llama.cpp; PEER names the folder of its binaries
	$(BIN)/python benchmarks/serving.py --model $(MODEL) $(if $(PEER),--peer $(PEER))
	$(BIN)/python benchmarks/engine.py --engine fast --model $(MODEL) $(if $(PEER),--peer $(PEER))
	$(BIN)/python benchmarks/accuracy.py --model $(MODEL) $(if $(PEER),--peer $(PEER))

clean: ## remove what was built and installed here
	rm -rf $(VENV) build dist mashbox/ui/dist mashbox/ui/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .test-models .test-agents

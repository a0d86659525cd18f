# The two commands: `make run` sets everything up and serves the starter model, `make test` checks everything.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MODEL ?= smollm2-135m
JOBS ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run install dev check help-pages format test fast bench with-node ui ui-dev clean help

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
BUILT := hatch_build.py $(wildcard mashbox/engine/worker/kernels/cpu/*.[ch]* mashbox/ui/*.*) \
  $(shell find mashbox/ui/src -type f)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt $(BUILT)
	@echo 'Installing mashbox and torch into $(VENV), building kernels and chat page: a minute or two ...'
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo 'Installing what development needs ...'
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

check: dev ## formatting, lint, types, help pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mashbox.ui.build check
	$(BIN)/python docs/help_pages.py --check

help-pages: dev ## write docs/help.md from the commands
	$(BIN)/python docs/help_pages.py

format: dev ## put the formatting right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: check ## everything: checks, then all tests
	@packaging/chromium.sh
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

fast: dev ## the tests for the loop while you work
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m 'not slow and not real' -q

bench: install ## figures against llama.cpp; PEER names the folder of its binaries
	$(BIN)/python benchmarks/serving.py --model $(MODEL) $(if $(PEER),--peer $(PEER))
	$(BIN)/python benchmarks/engine.py --engine fast --model $(MODEL) $(if $(PEER),--peer $(PEER))
	$(BIN)/python benchmarks/accuracy.py --model $(MODEL) $(if $(PEER),--peer $(PEER))

clean: ## remove what was built and installed here
	rm -rf $(VENV) build dist mashbox/ui/dist mashbox/ui/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .test-models .test-agents

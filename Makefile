# One command per chore; every target sets up what it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Where this is set, every process that a test starts compiles the package again: half a second each.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup lint docs check fix test torture demo bench clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(READY)  ## make the virtual environment

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tidelake needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

lint: $(READY)  ## formatting, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(READY)  ## write what is generated, build the pages as a site in build/site
	$(BIN)/python -m tools.api_reference
	$(BIN)/python -m tools.cli_reference
	$(BIN)/mkdocs build --strict --quiet

check: lint docs test  ## everything a change must pass

fix: $(READY)  ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(READY)  ## the whole test suite
	$(BIN)/python -m pytest -m "not torture" -n 2

torture: $(READY)  ## the long random runs
	$(BIN)/python -m pytest -m torture -o faulthandler_timeout=0

demo: $(READY)  ## see it work
	$(BIN)/python -m tidelake demo

bench: $(READY)  ## measure beside peers, results in bench/results
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,bench]'
	$(BIN)/python -m bench.run

clean:  ## remove what was built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .hypothesis

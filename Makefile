# Start with `make quickstart` and `make test`. Both create .venv first.
#
# With a GPU: `make TORCH=torch quickstart` installs the newest torch build instead of the tested
# version.

PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
# Libraries of other versions than ours may warn about each other; other warnings stay errors.
DEPRECATED := $(foreach kind,Deprecation PendingDeprecation Future,-W ignore::$(kind)Warning)
INSTALLED := .venv/.installed

ifeq ($(TORCH),torch==2.13.0)
CONSTRAINTS := constraints.txt
else
# another torch resolves its own dependencies; everything else stays as tested
CONSTRAINTS := .venv/constraints.txt
endif

.DEFAULT_GOAL := help
.PHONY: help install quickstart test test-slow test-oldest test-newest check docs format conformance clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 14

$(INSTALLED): setup.cfg setup.py pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	grep -v '^torch==' constraints.txt > .venv/constraints.txt
	$(BIN)/python -m pip install -c $(CONSTRAINTS) "$(TORCH)"
	$(BIN)/python -m pip install -c $(CONSTRAINTS) -e ".[dev]"
	touch $@

install: $(INSTALLED)  ## create .venv and install the project with the tested versions

quickstart: $(INSTALLED)  ## train on the built-in sample, about a minute on two cores; writes ./minbert
	$(BIN)/minbert finetune --resume_from_checkpoint true
	$(BIN)/minbert predict minbert --task sst "The acting is brilliant and the ending is superb."

test: $(INSTALLED)  ## run the tests, one process per core; no network after the installation
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(INSTALLED)  ## also run the slow tests
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not cuda and not realdata and not conformance"

test-oldest:  ## run the tests with the oldest versions that setup.cfg allows, in .venv-oldest
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	sed -nE 's/^ +([A-Za-z0-9_-]+)>=([0-9.]+)(,.*)?$$/\1==\2/p' setup.cfg > .venv-oldest/constraints.txt
	.venv-oldest/bin/python -m pip install -c .venv-oldest/constraints.txt -e ".[dev]"
	.venv-oldest/bin/python -m pytest -n auto --dist loadfile $(DEPRECATED)

test-newest:  ## run the tests with the newest versions, in .venv-newest; of torch with TORCH=torch
	test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --upgrade "$(TORCH)"
	.venv-newest/bin/python -m pip install --upgrade --upgrade-strategy eager "$(TORCH)" -e ".[dev]"
	.venv-newest/bin/python -m pytest -n auto --dist loadfile $(DEPRECATED)

check: $(INSTALLED)  ## format, lint, types, import contracts, conventions of transformers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/modeling_minbert/test_conventions.py

docs: $(INSTALLED)  ## build the documentation; warnings are errors
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) -e ".[docs]"
	$(BIN)/sphinx-build -q -W --keep-going -E -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

format: $(INSTALLED)  ## apply the format and the fixes of ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

conformance: $(INSTALLED)  ## run transformers' own model tests on every class; downloads them once
	folder=$$($(BIN)/python tests/conformance/fetch.py) && PYTHONPATH=$$folder \
	$(BIN)/python -m pytest -m conformance \
	-o strict_markers=false -W default --disable-warnings tests/conformance/suite.py

clean:  ## remove the environment, caches and the quickstart's output
	rm -rf .venv .venv-oldest .venv-newest .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache minbert *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

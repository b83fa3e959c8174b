# Everything a person does with this project, one target each. `make` alone prints the list.
#
# The only thing needed beforehand is Python 3.11 or later (and make). What is installed comes from
# requirements/dev.lock, by version and hash, a Java for Spark included; nothing is fetched that is not named there.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
KERNELS := $(VENV)/.kernels
CLASSES := $(VENV)/.spark-classes
PYTEST  := $(BIN)/python -m pytest
# Several processes share the tests, a file at a time, those with the most work first (tests/conftest.py).
SHARED  := --dist loadfile --no-loadscope-reorder
CODE    := src tests tools examples $(wildcard bench)
KERNEL_SOURCES := $(wildcard $(addprefix src/embermq/,columns/*.py columns/compiled/*.py columns/compiled/*/*.py columns/plain/*.py \
                  format/*.py model/flags.py))

# Hundreds of processes of the tests import the same modules: compiled code is kept, whatever is set elsewhere.
unexport PYTHONDONTWRITEBYTECODE

# Choose an interpreter yourself with `make setup PYTHON=/path/to/python3.12`.
PYTHON ?=

.PHONY: help setup quick test extended check demo crash fuzz interop spark-versions bench bench-peers docs lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) $(KERNELS) ## Make .venv with the locked dependencies and this package (does nothing when up to date)

# A candidate counts only if it runs: a shim of a version manager may exist and refuse to work.
$(STAMP): requirements/dev.lock pyproject.toml
	@python=""; \
	for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	    then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "make setup: no usable Python found. Python 3.11 or later with venv and ensurepip is needed" >&2; \
	    echo "(looked for: $(PYTHON) python3 python3.13 python3.12 python3.11; on Debian and Ubuntu the" >&2; \
	    echo "package is python3-venv). Point to one with: make setup PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "setup: making $(VENV) with $$("$$python" --version)"; \
	    rm -rf $(VENV); "$$python" -m venv $(VENV); \
	fi
	@echo "setup: installing requirements/dev.lock"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)
	@echo "setup: ready, $(BIN)/embermq"

# Compiled once for all processes: several that meet a missing kernel at the same time would each compile it.
$(KERNELS): $(STAMP) $(KERNEL_SOURCES)
	@echo "setup: compiling kernels (a minute or two, after each change of them)"
	@$(BIN)/python tools/compile_kernels.py
	@touch $(KERNELS)

# Some forty JVMs of the tests map the classes of Spark from a file instead of reading and verifying them each.
$(CLASSES): $(STAMP) tests/support/class_archive.py | $(KERNELS)
	@echo "tests: archiving classes of Spark (about a minute)"
	@$(BIN)/python -m tests.support.class_archive
	@touch $(CLASSES)

# The checks take one core; what the tests need is made beside them. In a new clone that is also the compiled form of
# the tests, which three processes would otherwise each make; mistakes in them are shown by the run itself.
# Three processes keep two cores busy: a good part of the tests waits, for a disk, for a JVM, for a child to be killed.
test: setup ## For every push: check, then the tests of every part (no Java needed)
	@trap 'kill $$(jobs -p) 2>/dev/null || true' EXIT; \
	$(MAKE) --no-print-directory check & checks=$$!; \
	$(MAKE) --no-print-directory $(CLASSES); \
	[ -d tests/__pycache__ ] || $(PYTEST) --collect-only -qq > /dev/null 2>&1 || true; \
	wait $$checks
	$(PYTEST) -n 3 $(SHARED) -q --durations=10

# What `make test` proves in one process or one format, in others: clusters, killed drivers, lake formats, programs of the
# documents, benchmarks at smoke size. CI runs both.
extended: setup $(CLASSES) ## The tests marked `extended`: clusters, kills, lake formats, documents' programs
	$(PYTEST) -m "extended and not long" -n 3 $(SHARED) -q --durations=10

# Types and layers are checked beside the tests, on the other core.
quick: setup ## Lint, types, layers, unit and property tests; for every change
	$(BIN)/ruff check -q $(CODE)
	$(BIN)/ruff format --check -q $(CODE)
	@trap 'kill $$(jobs -p) 2>/dev/null || true' EXIT; \
	( $(BIN)/mypy $(CODE) && $(BIN)/lint-imports --no-logo 2>&1 | tail -n 3 ) & types=$$!; \
	$(PYTEST) tests/unit tests/property -m "not long and not interop and not slow" -n 2 $(SHARED) -q --durations=5; \
	wait $$types

check: setup ## Lint and format (ruff), types (mypy --strict), layers (import-linter)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

demo: setup ## See a broker with its clients being killed and nothing lost, and Spark following it (DEMO=--fast: shorter)
	$(BIN)/embermq demo $(DEMO)

crash: setup $(CLASSES) ## The long tests: kills, lost writes, failing disks; stores and Spark jobs
	$(PYTEST) -m long -q --durations=10

fuzz: setup ## Property and kernel tests with new random examples each time
	HYPOTHESIS_PROFILE=search $(PYTEST) tests/property tests/columns -n 2 $(SHARED) -q --durations=10

interop: setup ## Against Apache RocketMQ (needs java and mvn)
	@for tool in java mvn; do command -v $$tool >/dev/null || \
	    { echo "make interop: $$tool is not on the PATH; a JDK and Maven are needed" >&2; exit 1; }; done
	$(PYTEST) tests/interop -m "not long" -q --durations=10

# For a nightly run: the first one downloads about 2 GB into the caches of pip and of the tests.
spark-versions: setup ## Spark 4.0 to 4.3, each in an environment of its own with the wheel (VERSION=4.1: one of them)
	$(PYTEST) tests/versions -m versions -k "$(VERSION)" -q --durations=10

bench: setup ## Measure this machine at real size
	$(BIN)/python -m bench

bench-peers: setup ## The same work beside other stores
	$(BIN)/python -m bench --peers

docs: setup ## Write again the pages that are generated from the source
	$(BIN)/python tools/settings_page.py
	$(BIN)/python tools/spark_pages.py
	$(BIN)/python tools/namesrv_page.py
	$(BIN)/python tools/broker_page.py
	$(BIN)/python tools/transactions_page.py
	$(BIN)/python -m tools.state_pages

# `--universal` makes one lock for every supported Python, system and processor. What is locked stays as it is
# where it still fits; newer versions with `make lock UPGRADE=--upgrade`.
UPGRADE ?=
lock: ## Bring requirements/dev.lock up to date with pyproject.toml
	@scratch="$$(mktemp -d)"; trap 'rm -rf "$$scratch"' EXIT; \
	python3 -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv; \
	"$$scratch/venv/bin/uv" pip compile --quiet $(UPGRADE) --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    pyproject.toml requirements/build.in --extra dev --extra spark -o requirements/dev.lock

clean: ## Remove the environment and every cache in this directory
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +

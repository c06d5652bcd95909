# `make help` lists what there is. Every target installs what it needs first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
WORKFLOWS ?= examples/order_fulfilment
# Without `embedded` the servers are the programs that are first on PATH.
EXTRAS ?= workers,embedded,flower,dashboard
export UV_LINK_MODE ?= copy
# Without compiled files every worker, command and test process would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
# A package index that pip has been told of by the environment is good for uv, too.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

.PHONY: help install demo dev flower test test-all pytest chromium screenshots test-fast chaos kills lint format bench bench-quick bench-compare dist clean

help: ## Show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.tools/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Rival needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	@$(PYTHON) -m venv .tools && .tools/bin/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.installed: pyproject.toml constraints.txt | $(UV)
	@$(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(VENV)
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[$(EXTRAS)]' --group dev
	@touch $@

install: $(VENV)/.installed ## Make .venv with the rival command and everything it needs

demo: install ## See durable runs live, also in the dashboard: a retry, a cancel, a killed worker (KEEP=1: until Ctrl-C)
	@$(BIN)/rival demo $(if $(KEEP),--keep)

dev: install ## Keep Postgres, Redis and workers up for WORKFLOWS (default: examples/order_fulfilment)
	@$(BIN)/rival dev --workflows $(WORKFLOWS)

flower: install ## Watch every attempt in Flower, beside `make dev`
	@$(BIN)/rival flower

test: lint pytest ## Run linters, types, and all tests but those that take long

test-all: ## The same with the tests that take long, and four times as many random examples
	@RIVAL_EFFORT=4 $(MAKE) lint pytest SELECT=

# What pytest is told to run.
SELECT ?= -m 'not long'
pytest: install chromium ## Run the tests without the linters
	@$(BIN)/pytest -n 3 --dist worksteal $(SELECT)

# As root where apt is: elsewhere tests/browser use the Chromium or Chrome that there is, or are skipped.
chromium:
	@command -v chromium chromium-browser google-chrome >/dev/null \
		|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium fonts-dejavu >/dev/null; } \
		|| echo "tests/browser will be SKIPPED: there is no Chromium here, and apt cannot install it"

screenshots: install chromium ## Take the pictures of the dashboard for README and docs, along the newcomer's path
	@RIVAL_SCREENSHOTS=docs/images $(BIN)/pytest -q tests/browser/test_newcomer.py

test-fast: install ## Run the tests that need no workers, in under a minute
	@$(BIN)/pytest -n 2 --dist worksteal -m 'not slow and not servers' -k 'not postgres' tests/unit tests/contract tests/architecture

chaos: install ## Break everything for MINUTES (5) per POOL (all) in the order of SEED (random), then look for damage
	@$(BIN)/python -m tests.chaos.storm --minutes $(or $(MINUTES),5) --pool $(or $(POOL),all) $(if $(SEED),--seed $(SEED))

kills: install ## Kill workers under load, KILLS (100) times per POOL (all): nothing is lost, and each drain is quick
	@$(BIN)/python -m tests.chaos.kills --kills $(or $(KILLS),100) --pool $(or $(POOL),all) $(if $(SEED),--seed $(SEED))

lint: install ## Check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: install ## Bring the code into shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: install ## Measure Rival, DBOS and Celery chains side by side (takes long)
	@$(BIN)/python -m benchmarks

bench-quick: install ## The same with small numbers, in about ten minutes
	@$(BIN)/python -m benchmarks --quick

bench-compare: install ## Measure this tree against the commit REV in turns; ONLY names disciplines
	@$(BIN)/python -m benchmarks.compare $(or $(REV),HEAD) $(if $(ONLY),--only $(ONLY))

dist: install ## Build the wheel and the sdist into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build

clean: ## Remove environments and caches; the data in .rival stays
	@rm -rf $(VENV) .tools .bench dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# `make help` lists what there is. Every target installs what it needs first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
export UV_LINK_MODE ?= copy

.PHONY: help install demo dev flower test test-fast lint bench bench-quick clean

help: ## Show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.tools/bin/uv:
	@$(PYTHON) -m venv .tools && .tools/bin/python -m pip install --quiet uv

$(VENV)/.installed: pyproject.toml constraints.txt | $(UV)
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	@$(UV) pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[workers,embedded,flower]' --group dev
	@touch $@

.tools/bin/uv: ;

install: $(VENV)/.installed ## Make .venv with the rival command and everything it needs

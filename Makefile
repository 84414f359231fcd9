VENV ?= .venv
BIN := $(VENV)/bin
export CARGO_TERM_COLOR ?= auto

.PHONY: help dev build format lint lint-python test conformance bench check clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

dev: ## make a virtual environment with fastrender (editable, release build) and all that the checks need
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e '.[dev]'

build: ## rebuild the extension (release profile) into the environment
	$(BIN)/maturin develop --release -q

format: ## format and fix what can be fixed
	cargo fmt --all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: lint-python ## formats, clippy, ruff, mypy, stubs, import layers
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

lint-python: ## ruff, mypy, import layers; the stub against the extension where it is installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@if $(BIN)/python -c 'import fastrender._native' 2>/dev/null; then \
		$(BIN)/python -m mypy.stubtest fastrender._native --mypy-config-file pyproject.toml; \
	else echo "stubtest: fastrender is not installed here, skipped"; fi

test: ## Rust and Python tests
	cargo test --workspace
	$(BIN)/python -m pytest

conformance: ## hold the server against the reference's recorded answers (needs ../shared)
	bash scripts/conformance.sh

bench: ## criterion benches; the HTTP one is benches/http_bench.py
	cargo bench -p fastrender-core

check: lint test conformance ## all of it: what CI calls

clean: ## remove what was built
	rm -rf target $(VENV) dist

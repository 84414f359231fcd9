#!/usr/bin/env bash
# Make a virtual environment if there is none, install fastrender with what its tests need, and run all tests.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/python -m pip install -q --upgrade pip
.venv/bin/python -m pip install -q -e '.[dev]'
cargo test --workspace
.venv/bin/python -m pytest "$@"

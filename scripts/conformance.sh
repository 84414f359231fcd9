#!/usr/bin/env bash
# Hold the installed fastrender against the recorded answers in ../shared (or FASTRENDER_SHARED); skip where there are none.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
shared=${FASTRENDER_SHARED:-$PWD/../shared}
if [ ! -d "$shared/conformance" ]; then
  echo "conformance: skipped, there is no $shared/conformance"
  exit 0
fi
"$bin/python" "$shared/conformance/run_templates.py"
"$bin/python" "$shared/conformance/run_parsers.py" --command "$bin/fastrender parse"
suites=$shared/conformance/suites
"$bin/python" "$shared/conformance/run.py" "$suites"/*-plain.json "$suites"/*-tools.json "$suites"/derender-*.json \
  "$suites"/qwen*-image*.json "$suites/qwen3vl-tokenize.json" \
  --serve "$bin/fastrender serve {model} --served-model-name m --strftime-now 2026-12-01T12:00:00 --port {port} {serve_args}" --port "${CONFORMANCE_PORT:-8190}"

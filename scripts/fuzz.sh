#!/usr/bin/env bash
# Run each fuzz target for a while (seconds: the first argument, 20 unless given), from the corpus in target/fuzz-corpus.
# Stable Rust will do: coverage is what the flags ask for. With nightly, `cargo fuzz run parse` finds more.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
if ! command -v c++ >/dev/null; then
  echo "fuzz: skipped, libFuzzer needs a C++ compiler"
  exit 0
fi
export CARGO_TARGET_DIR=$PWD/target/fuzz
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
cargo build --release --manifest-path fuzz/Cargo.toml --target "$(rustc -vV | sed -n 's/^host: //p')"
for target in parse state; do
  mkdir -p "target/fuzz-corpus/$target"
  "$CARGO_TARGET_DIR"/*/release/$target "target/fuzz-corpus/$target" -max_total_time="$seconds" -max_len=2048 \
    -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 -dict=fuzz/markers.dict -artifact_prefix="target/fuzz-corpus/$target-"
done

#!/usr/bin/env bash
# Checks format, lint rules, types, import contracts, and what the tests of tests/tree tell of the sources and the docs
# without running them, and that generated pages are as the code is. A failed check does not stop the others.
#   usage: scripts/lint.sh [BIN]
set -uo pipefail
cd "$(dirname "$0")/.."
bin=${1:-.venv/bin}
status=0

check() { # NAME COMMAND... : prints the output of COMMAND only if it fails
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    printf 'lint: %-8s ok\n' "$name"
  else
    printf 'lint: %-8s FAILED: %s\n%s\n' "$name" "$*" "$output"
    status=1
  fi
}

check format "$bin/ruff" format --check --quiet .
check ruff "$bin/ruff" check --quiet .
check types "$bin/mypy"
check layers "$bin/lint-imports" --no-logo
check tree "$bin/python" -m pytest -q -p no:randomly tests/tree
check pages "$bin/python" scripts/reference_pages.py --check
exit "$status"

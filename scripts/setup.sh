#!/usr/bin/env bash
# Makes the virtual environment VENV with headrace installed editable and everything that its tests need.
#   usage: scripts/setup.sh [VENV]
# Everything comes from PyPI at the versions and hashes of requirements/dev.txt, through uv (which PyPI has too) and
# through pip where uv cannot reach the index. HEADRACE_PYTHON names the interpreter; otherwise the first that works.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}

works() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

choose_python() {
  local candidate
  for candidate in ${HEADRACE_PYTHON:-} python3.13 python3.12 python3.11 python3 python; do
    # a version manager's shim may be on the path and still refuse to run: only a run tells
    if works "$candidate"; then echo "$candidate"; return; fi
  done
  echo "headrace needs Python 3.11 or newer with the venv module; set HEADRACE_PYTHON to one" >&2
  return 1
}

say() { printf '\033[2m[setup]\033[0m %s\n' "$*" >&2; }

if ! works "$venv/bin/python"; then
  python=$(choose_python)
  say "making $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
fi
py=$venv/bin/python

# uv reads other variables than pip: hand on what this machine has configured
export SSL_CERT_FILE=${SSL_CERT_FILE:-${PIP_CERT:-}} UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-}}
[ -n "$SSL_CERT_FILE" ] || unset SSL_CERT_FILE
[ -n "$UV_DEFAULT_INDEX" ] || unset UV_DEFAULT_INDEX

install() { # ARGS... : as both uv and pip understand them
  if [ -x "$venv/bin/uv" ] && "$venv/bin/uv" pip install -q --python "$py" "$@"; then return; fi
  say "installing with pip"
  "$py" -m pip install -q --disable-pip-version-check "$@"
}

[ -x "$venv/bin/uv" ] || "$py" -m pip install -q --disable-pip-version-check 'uv>=0.5' || say "no uv: pip will do, slower"
say "installing what requirements/dev.txt pins (1.2 GB the first time, some minutes)"
install --require-hashes -r requirements/dev.txt
say "installing headrace, its hot modules compiled"
install --no-deps -e .
"$py" -c 'import headrace' || { say "headrace does not import"; exit 1; }
say "done: $venv/bin/headrace"

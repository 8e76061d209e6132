# Each target is a few lines that also run by hand. Dependencies are in .venv, in the versions of constraints.txt. A stamp
# file marks what is installed, so a second run needs neither pip nor the network.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
ARGS ?=
# Those of the modules that hatch_build.py compiles, and those that run a whole proxy.
COMPILED_TESTS ?= tests/protocol $(addprefix tests/proxy/,quota session server) $(wildcard tests/proxy/test_*.py) tests/oracles tests/simulation tests/fuzz
# What builds and runs an image. Both need root, with or without a container engine.
IMAGE_TOOLS := buildah:buildah debootstrap:debootstrap runc:runc
SECONDS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-units branches test-proofs test-kafka test-kafka-units test-kafka-proofs compiled image test-compiled test-artefacts test-pythons test-long test-pipeline test-pipeline-large test-kubernetes test-rebalance simulate mutate fuzz soak bench bench-pipeline apis docs lint format java promtool tools kubernetes clean

help: ## list these targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-27s%s\n", $$1, $$2 }'

demo: .venv/demo.installed ## show a throttled producer and consumer (options: make demo ARGS="--shaping sampled")
	$(BIN)/kafka-quota-proxy demo $(ARGS)

test: test-units test-proofs ## run the tests in six minutes: units without Spark, and short proofs with a real Kafka (needs Java 17, Maven and promtool)

test-units: java promtool .venv/dev.installed
	$(BIN)/pytest -n auto --dist loadgroup --ignore tests/end_to_end $(ARGS)

branches: java .venv/dev.installed ## run the unit tests of the packages that decide, which must take 95 % of their branches
	$(BIN)/python -m tests.branches $(ARGS)

test-proofs: java .venv/dev.installed
	$(BIN)/pytest tests/end_to_end $(ARGS)

test-kafka: test-kafka-units test-kafka-proofs ## run the other tests with real Kafkas, clients and Spark, seconds each

test-kafka-units: java promtool tools .venv/dev.installed
	$(BIN)/pytest -m kafka -n auto --dist loadgroup --ignore tests/end_to_end $(ARGS)

test-kafka-proofs: java promtool tools .venv/dev.installed
	$(BIN)/pytest -m kafka tests/end_to_end $(ARGS)

compiled: build/compiled/ready ## compile what runs for each request into build/compiled, in some minutes

# As a release is built: from the sdist, in an environment of its own, with the pinned compiler.
build/compiled/ready: pyproject.toml hatch_build.py constraints.txt .venv/dev.installed $(shell find config protocol proxy pipeline kafka_quota_proxy/__init__.py kafka_quota_proxy/testing -name '*.py' -o -name '*.pyx')
	@rm -rf build/compiled
	$(BIN)/python -m build --sdist --outdir build/compiled
	KQP_COMPILE=1 PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_BUILD_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/compiled build/compiled/*.tar.gz
	@$(BIN)/python -m zipfile -e build/compiled/*.whl build/compiled
	@touch $@

test-compiled: java compiled ## run the unit tests, the simulation and the fuzzers with the compiled modules
	PYTHONPATH=build/compiled PYTHONSAFEPATH=1 KQP_COMPILE=1 $(BIN)/pytest -n auto --override-ini=pythonpath="build/compiled ." $(COMPILED_TESTS) $(ARGS)

image: .venv/dev.installed ## build the image in some minutes (as root, with buildah)
	@tests/ensure_packages.sh $(IMAGE_TOOLS)
	$(BIN)/python -m tests.artefacts.support.images

test-artefacts: java compiled ## build wheels and image, install and run each in front of a real Kafka (as root, with buildah)
	@tests/ensure_packages.sh $(IMAGE_TOOLS)
	$(BIN)/pytest -m artefacts -n 2 --dist loadfile tests/artefacts $(ARGS)

test-pythons: java .venv/dev.installed ## build, install and run the compiled wheel on the Python of each Debian release (as root, with debootstrap)
	@tests/ensure_packages.sh $(IMAGE_TOOLS)
	$(BIN)/pytest -m long tests/artefacts $(ARGS)

test-long: java .venv/dev.installed ## run the tests that take minutes each
	$(BIN)/pytest -m long --ignore tests/artefacts $(ARGS)

test-kubernetes: kubernetes .venv/dev.installed ## install the Helm chart in a real Kubernetes (root; the first run builds it in a quarter of an hour)
	$(BIN)/pytest -m kubernetes $(ARGS)

test-rebalance: java .venv/dev.installed ## move gigabytes between brokers, throttled by Kafka and by us, write bench/REBALANCES.md
	$(BIN)/pytest -m rebalance $(ARGS)

test-pipeline: java tools .venv/dev.installed ## run the pipeline on logs of millions of records, with a lake, on a cluster and killed, and look at the report with Chromium
	$(BIN)/pytest -m pipeline $(ARGS)

test-pipeline-large: java .venv/dev.installed ## check the bounds of time, memory and spilling with 10^8 records too
	PIPELINE_ROWS=1e6,1e7,1e8 $(BIN)/pytest -m pipeline tests/pipeline/test_scale.py $(ARGS)

simulate: .venv/dev.installed ## run the proxy in simulated worlds until Ctrl-C or a finding (for a minute: make simulate SECONDS=60; ARGS=--help)
	$(BIN)/python -m tests.simulation $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

mutate: .venv/mutation.installed ## see whether unit tests notice small faults in the packages that decide, write tests/mutation/RECORD.md
	$(BIN)/python -m tests.mutation $(ARGS)

fuzz: .venv/dev.installed ## feed ten million valid and damaged frames to sessions and readers, write tests/fuzz/RECORD.md
	$(BIN)/python -m tests.fuzz $(ARGS)

soak: java .venv/dev.installed ## run clients of five libraries for an hour while brokers and proxy are killed, write tests/soak/RECORD.md
	$(BIN)/python -m tests.soak $(ARGS)

bench: java compiled .venv/bench.installed ## measure the compiled proxy against a direct connection and other proxies, write bench/RESULTS.md
	PYTHONPATH=build/compiled PYTHONSAFEPATH=1 $(BIN)/python -m bench $(ARGS)

bench-pipeline: java .venv/bench.installed ## measure the pipeline on 10^6, 10^7 and 10^8 records, write bench/PIPELINE.md
	$(BIN)/python -m bench.pipeline $(ARGS)

apis: java .venv/dev.installed ## write the table of APIs in protocol/api.py from the newest Kafka's message definitions
	$(BIN)/python -m tests.protocol.api_table

docs: .venv/docs.installed ## build the pages into site/, and check their links (to view them: python3 -m http.server -d site)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: .venv/dev.installed ## check format, rules, types, import contracts, Dockerfiles and workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile deploy/spark/Dockerfile
	$(BIN)/zizmor --quiet --offline --strict-collection .github

format: .venv/dev.installed ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and the files of the tools
	rm -rf .venv build dist site .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# For tests that start a real Kafka: reports at once what is missing, or installs it if allowed.
java:
	@tests/end_to_end/ensure_java.sh

# For the tests of deploy/.
promtool:
	@tests/ensure_promtool.sh

# For the tests of completion scripts, of deploy/'s unit file and of the status page.
tools:
	@tests/ensure_packages.sh zsh:zsh fish:fish systemd-analyze:systemd chromium:chromium chromedriver:chromium-driver

# For the tests with a Kubernetes cluster.
kubernetes:
	@tests/ensure_packages.sh etcd:etcd-server containerd:containerd runc:runc nft:nftables conntrack:conntrack iptables:iptables buildah:buildah /usr/lib/cni:containernetworking-plugins

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info[:2] < (3, 15) or sys.exit("$(PYTHON) is Python %d.%d; 3.11, 3.12, 3.13 or 3.14 is needed. Name one: make PYTHON=python3.12" % sys.version_info[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# hatchling builds this package, and setuptools builds Spark's, which is a source package. Both are installed first and used
# without isolation, so that their versions are pinned and a second installation needs no network.
.venv/%.installed: pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) hatchling editables setuptools
	$(PIP) --no-build-isolation --editable '.[$*]'
	@touch $@

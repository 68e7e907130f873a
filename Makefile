# Rollstream: every task a person runs here. `make` alone prints this help.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Any torch from 2.6 on will do; on machines with an own CPU wheel this exact one is found there.
TORCH ?= torch==2.13.0
RUN_DIR ?= runs/quickstart
# Training stops asking for new groups after this long, so that the whole command stays within ten minutes.
RUN_ARGS ?= --set dispatch.wall_s=400

.DEFAULT_GOAL := help
.PHONY: help setup system equipment images run test test-long test-kafka test-k8s test-images check lint types exact chaos bench clean

help: ## print this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready system ## install everything into .venv (and bubblewrap through apt-get when it is missing)

$(VENV)/.ready: pyproject.toml
	@echo "== setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/pip install --progress-bar off -qq '$(TORCH)'
	@$(BIN)/pip install --progress-bar off -qq -e '.[test]'
	@touch $@

system:
	@command -v bwrap >/dev/null && exit 0; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "== bubblewrap is missing: installing it with apt-get"; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap >/dev/null; \
	else \
	  echo "bubblewrap is missing and this user may not install it: run 'apt-get install bubblewrap' as root"; exit 1; \
	fi

equipment:
	@command -v dockerd >/dev/null && command -v debootstrap >/dev/null && exit 0; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "== docker.io or debootstrap is missing: installing both with apt-get, for the tests of the docker sandbox"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io debootstrap >/dev/null \
	    || echo "that failed: the tests that need them will be skipped"; \
	else \
	  echo "docker.io or debootstrap is missing and this user may not install it: the tests that need them will be skipped"; \
	fi

run: setup ## set up, then train a repair policy on this machine (about ten minutes); again: goes on or shows the result
	@$(BIN)/rollstream run --run-dir $(RUN_DIR) $(RUN_ARGS)

images: ## build the container images of all services (IMAGES_ARGS='--tag v1 closure gate'; see infra/images/README.md)
	@infra/images/build.sh $(IMAGES_ARGS)

# Many tests wait for real processes, and a machine that others load starves some of them. What failed beside all others
# is run once more by itself: a failure that stays is one, and what passed only then stands in the output by name.
test: setup equipment ## set up, then run all tests (ruff and mypy among them)
	@$(BIN)/pytest -n 2 --dist loadfile || { code=$$?; [ $$code = 1 ] || exit $$code; \
	  echo "== the failures above once more, one after the other"; $(BIN)/pytest --last-failed --last-failed-no-failures none; }

test-long: setup equipment ## the end-to-end tests that take longest: resumed runs, kills, chaos, elastic groups, S3, backup (half an hour)
	@$(BIN)/pytest -m long

test-kafka: setup ## suites, whole runs, logins and a short chaos on the Apache Kafka of ../shared/kafka (six minutes)
	@$(BIN)/python -m tests.kafka

test-k8s: setup ## images, manifests and a run under rollouts on the Kubernetes of ../shared/kube, as root (a quarter of an hour)
	@TORCH='$(TORCH)' $(BIN)/python -m tests.k8s

test-images: setup ## every image, and the compose stack to its audit, on a Docker Engine of its own, as root (ten minutes)
	@TORCH='$(TORCH)' $(BIN)/python -m tests.infra

check: setup lint types test ## ruff and mypy first, by themselves, then all tests

lint:
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types:
	@$(BIN)/mypy

exact: setup ## kill the trainer at every place of an update and of a start (a quarter of an hour): same bytes each time
	@ROLLSTREAM_EXACT=1 $(BIN)/pytest -s tests/e2e/test_exact.py

chaos: setup ## ten minutes of seeded faults over every service, broker and store (CHAOS_ARGS='--seed N --kafka')
	@$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

bench: setup ## the measurements behind the figures in the README, run by hand
	@for bench in tests/bench/*_bench.py; do \
	  echo "== $$bench"; $(BIN)/python -m tests.bench.$$(basename $$bench .py) || exit 1; done

clean: ## remove caches and build leftovers (runs and .venv stay)
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

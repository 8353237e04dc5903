.DEFAULT_GOAL := help
.PHONY: help setup run ask top apply test test-unit test-chart test-dashboards test-app generate verify bench bench-quick lint format clean
.PHONY: image cluster-up cluster-down test-e2e
PYTHON := .venv/bin/python

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: .venv/.run  ## Run the whole pipeline on this machine (CPU); Ctrl-C stops it
	@exec $(PYTHON) -m app.ops.run $(ARGS)

# Through the environment and unexpanded: a question's quotes, dollars and backticks are neither the shell's nor make's.
unexport Q
ask: export BATON_QUESTION := $(value Q)
ask: .venv/.run  ## Ask the running pipeline: make ask Q="What does the guardrail do?"
	@$(PYTHON) -m app.ops.ask $(ARGS) -- "$$BATON_QUESTION"

top: .venv/.run  ## What the running pipeline does, in the terminal; Ctrl-C ends it
	@$(PYTHON) -m app.ops.top $(ARGS)

apply: .venv/.run  ## Send a changed configuration to the running pipeline: make apply ARGS="--config my.yaml"
	@$(PYTHON) -m app.ops.apply $(ARGS)

test: test-unit test-chart test-dashboards test-app  ## Run every test suite (sets itself up)

test-unit: .venv/.test  ## Stages, configuration, API: no Ray, seconds
	$(PYTHON) -m pytest tests/unit

test-chart: .venv/.test  ## The chart, its shapes and what it refuses: no cluster, half a minute
	$(PYTHON) -m pytest tests/chart

test-dashboards: .venv/.test  ## Alert rules, each with its cases, and the boards: promtool, seconds
	$(PYTHON) -m pytest tests/dashboards

test-app: .venv/.test  ## The pipeline in a real Serve with the real small models: minutes
	$(PYTHON) -m pytest tests/app

test-e2e: .venv/.test  ## User stories on a kind cluster, which is made where it is not there: half an hour
	$(PYTHON) -m pytest tests/e2e $(ARGS)

image:  ## Build the CPU image under the name that the chart runs
	@scripts/image.sh build

cluster-up:  ## Baton on a kind cluster of this machine, with the KubeRay operator
	@scripts/cluster_up.sh

cluster-down:  ## Remove that cluster
	@scripts/cluster_down.sh

bench: .venv/.test  ## Measure everything and draw the tables and plots anew: 15 minutes, on a quiet machine
	$(PYTHON) -m tests.bench $(ARGS)

bench-quick: .venv/.test  ## Check that no ratio got lost: 5 minutes, nothing is written
	$(PYTHON) -m tests.bench --quick $(ARGS)

lint: .venv/.test  ## Formatting, lint rules and strict types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

format: .venv/.test  ## Format and mend what can be mended
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

generate: .venv/.test  ## Write what is generated: the chart's schema, values and README, boards, rules, the manifests
	$(PYTHON) -m scripts.generate

verify: .venv/.test  ## Fail where a generated file differs from what it is generated from
	$(PYTHON) -m scripts.generate --check

setup: .venv/.test  ## Install everything that running and testing need

clean:  ## Remove the models, the index and the environment
	rm -rf .baton .venv .uv

.venv/.run: pyproject.toml uv.lock
	@scripts/setup.sh
	@touch $@

.venv/.test: pyproject.toml uv.lock
	@scripts/setup.sh --all-groups
	@scripts/install_browser.sh
	@scripts/install_promtool.sh
	@touch $@ .venv/.run

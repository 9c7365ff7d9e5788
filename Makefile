# Every target sets itself up: Python environment in .venv, Java for those that start Spark.
SHELL := /usr/bin/env bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

RUN := scripts/run
# What needs no Spark session.
RUN_PLAIN := scripts/run --without-java
# More arguments: make test ARGS="-k merge -x".
ARGS ?=
# Of make reproduce: adaptive, hypercube, hybrid, rjoin or state.
PAPER ?=

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Make .venv and find Java, installing what is missing
	@$(RUN) true

.PHONY: demo
demo: ## Join two generated streams and check the results
	@$(RUN) watersmeet demo $(ARGS)

.PHONY: test
test: ## Unit, property, model and Spark tests
	@$(RUN) scripts/test $(ARGS)

.PHONY: unit
unit: ## The tests that need no Spark
	@$(RUN_PLAIN) pytest tests/unit tests/formats tests/property tests/model tests/papers --ignore-glob='*_spark.py' $(ARGS)

.PHONY: faults
faults: ## Tests that kill real processes (long)
	@$(RUN) pytest tests/faults $(ARGS)

.PHONY: chaos
chaos: ## Kills, flipped bits, races, power losses and failing disks on the local driver (half an hour)
	@$(RUN_PLAIN) python -m tests.chaos $(ARGS)

.PHONY: bench
bench: ## The benchmarks: many tasks and runs, a budget of memory, a hub, balance; against Spark equality, band and skewed joins, tables, many inputs, NEXMark, windows, large states (five hours)
	@failed=; for suite in many memory hub equality band skew tables graph nexmark window scale; do \
		$(RUN) python -m bench $$suite $(ARGS) || failed="$$failed $$suite"; done; \
	$(RUN_PLAIN) python -m bench balance || failed="$$failed balance"; \
	[ -z "$$failed" ] || { echo "a demand is not met:$$failed"; exit 1; }

.PHONY: reproduce
reproduce: ## The experiments of a paper: PAPER=adaptive, hypercube, hybrid, rjoin or state (eight to fifteen minutes)
	@$(RUN) python -m papers $(PAPER) $(ARGS)

.PHONY: lint
lint: ## Check format and rules
	@$(RUN_PLAIN) ruff format --check .
	@$(RUN_PLAIN) ruff check .

.PHONY: types
types: ## Check types
	@$(RUN_PLAIN) mypy

.PHONY: check
check: lint types test ## All that CI runs

.PHONY: format
format: ## Format the code and fix what can be fixed
	@$(RUN_PLAIN) ruff format .
	@$(RUN_PLAIN) ruff check --fix .

.PHONY: clean
clean: ## Remove .venv, caches and generated data
	rm -rf .venv .benchmarks .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist bench/.data examples/out
	rm -rf reproduce-adaptive reproduce-hypercube reproduce-hybrid reproduce-rjoin reproduce-state
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

CONFIG ?= config/local.yaml
PORT ?=
WORKERS ?= 0
PYTHON_BIN := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup serve test bench check-gpu lint check package images docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  variables: CONFIG=$(CONFIG) (serve), PORT= (serve), WORKERS=$(WORKERS) (test), ARGS= (serve, test, bench, check-gpu)"

setup: ## virtual environment, packages, models
	@scripts/setup_env.sh

serve: setup ## start the application on this machine and keep it running until Ctrl-C
	@exec $(PYTHON_BIN) -m deployments.cli serve $(CONFIG) $(if $(PORT),--port $(PORT)) $(ARGS)

test: setup ## all tests, one after another; WORKERS=2: in two processes
	$(PYTHON_BIN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: setup ## ruff and mypy
	$(PYTHON_BIN) -m ruff check .
	$(PYTHON_BIN) -m ruff format --check .
	$(PYTHON_BIN) -m mypy

bench: setup ## the benchmarks, three hours (bench/); ARGS="--only layer", "--quick", "--litellm"
	cd scripts && ../$(PYTHON_BIN) -m benchmarks $(ARGS)

check-gpu: setup ## what the first hour on a GPU must show, 25 minutes (bench/gpu/); ARGS="--model FOLDER"
	$(PYTHON_BIN) scripts/check_gpu.py $(ARGS)

check: lint test ## what has to pass before a change is merged

docs: setup ## the documents as a site with search (build/site/); ARGS="--serve"
	@$(PYTHON_BIN) scripts/docs_site.py $(ARGS)

package: setup ## a wheel and a source archive (dist/)
	@$(PYTHON_BIN) scripts/package.py $(ARGS)

images: setup ## the gateways' image, built and looked into, twelve minutes, as root; ARGS="--output FILE" keeps it
	@$(PYTHON_BIN) scripts/build_image.py $(ARGS)

clean: ## the virtual environment and everything built (prepared models stay)
	rm -rf .venv .docs-venv build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

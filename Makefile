# Everything here works from a fresh clone: `make run` and `make test` create the environment themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.cfg pyproject.toml supervisor/version.py

SECONDS ?= 600

.PHONY: help run test lint format bench fuzz soak clean

help:
	@echo "make run     start the daemon on examples/ringward.toml"
	@echo "make test    run all tests"
	@echo "make lint    what CI checks besides the tests"
	@echo "make format  put the code into its standard form"
	@echo "make fuzz    damage rings and log files for SECONDS=600 and let every reader at them"
	@echo "make soak    kill helpers at random for SECONDS=600 and compare every line"
	@echo "make bench   measure, and print a table"
	@echo "make clean   remove the environment and what the example wrote"

run: $(VENV)/.run-installed
	@exec $(BIN)/ringward up --config examples/ringward.toml

test: $(VENV)/.dev-installed
	$(BIN)/pytest --numprocesses=4 --dist=loadfile

lint: $(VENV)/.dev-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev-installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: $(VENV)/.dev-installed
	$(BIN)/python -m tests.logring.fuzz $(SECONDS)

soak: $(VENV)/.dev-installed
	$(BIN)/python -m tests.crash.harness $(SECONDS)

bench: $(VENV)/.dev-installed
	$(BIN)/python -m bench

$(VENV)/.run-installed: $(SOURCES)
	@sh deploy/environment.sh "$(PYTHON)" "$(VENV)" .
	@touch $@

$(VENV)/.dev-installed: $(SOURCES)
	@sh deploy/environment.sh "$(PYTHON)" "$(VENV)" ".[dev]"
	@touch $(VENV)/.run-installed $@

clean:
	rm -rf $(VENV) build dist *.egg-info examples/data .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Everything here works from a fresh clone: `make run` and `make test` create the environment themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.cfg pyproject.toml supervisor/version.py

SECONDS ?= 600

.PHONY: help run test lint format bench fuzz soak soak-services soak-days soak-chaos docs zipapp clean

help:
	@echo "make run     start the daemon on examples/ringward.toml"
	@echo "make test    run all tests"
	@echo "make lint    what CI checks besides the tests"
	@echo "make format  put the code into its standard form"
	@echo "make fuzz    damage rings and log files for SECONDS=600 and let every reader at them, then call the API"
	@echo "make soak    kill helpers at random for SECONDS=600 and compare every line"
	@echo "make soak-services  let 200 services crash at random for SECONDS=600 and account for everything"
	@echo "make soak-days  kill the scheduler over days of schedules for SECONDS=600 and account for every instant"
	@echo "make soak-chaos  kill everything, the root too, while people act, for SECONDS=600, and compare every line"
	@echo "make bench   measure, and print a table"
	@echo "make docs    the documentation as pages, build/docs/index.html"
	@echo "make zipapp  put it all into one file, dist/ringward.pyz"
	@echo "make clean   remove the environment and what the example wrote"

run: $(VENV)/.run-installed
	@exec $(BIN)/ringward up --config examples/ringward.toml

test: $(VENV)/.dev-installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --numprocesses=4 --dist=loadfile --no-loadscope-reorder

lint: $(VENV)/.dev-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev-installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: $(VENV)/.dev-installed
	$(BIN)/python -m tests.logring.support.fuzz $(SECONDS)
	LOGRING_EXAMPLES=5000 $(BIN)/pytest tests/logring tests/config tests/scheduler/launchers/test_launcher_commands.py
	API_EXAMPLES=250 $(BIN)/pytest tests/fuzz

soak: $(VENV)/.dev-installed
	$(BIN)/python -m tests.crash.harness $(SECONDS)

soak-services: $(VENV)/.dev-installed
	$(BIN)/python -m tests.crash.services $(SECONDS)
	$(BIN)/python -m tests.crash.services $(SECONDS) --cgroups off

soak-days: $(VENV)/.dev-installed
	$(BIN)/python -m tests.crash.compressed_day $(SECONDS)

soak-chaos: $(VENV)/.dev-installed
	$(BIN)/python -m tests.crash.chaos $(SECONDS)

bench: $(VENV)/.dev-installed
	$(BIN)/python -m bench

docs: $(VENV)/.dev-installed
	$(BIN)/python -m sphinx -W -n --keep-going -q docs build/docs
	@echo build/docs/index.html

zipapp: $(VENV)/.dev-installed
	$(BIN)/python -I deploy/zipapp/build.py dist/ringward.pyz

$(VENV)/.run-installed: $(SOURCES)
	@sh deploy/environment.sh "$(PYTHON)" "$(VENV)" .
	@touch $@

$(VENV)/.dev-installed: $(SOURCES)
	@sh deploy/environment.sh "$(PYTHON)" "$(VENV)" ".[dev]"
	@touch $(VENV)/.run-installed $@

clean:
	rm -rf $(VENV) build dist *.egg-info examples/data .mypy_cache .pytest_cache .ruff_cache .hypothesis

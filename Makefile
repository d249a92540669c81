# All targets work in a fresh clone: they create the environment themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.cfg setup.py pyproject.toml supervisor/version.py $(wildcard deploy/locked/*.txt)

SECONDS ?= 600
RUNS ?= 20
ROWS ?=
SOAK ?=

SUITE := --numprocesses=4 --dist=loadfile --no-loadscope-reorder -m
SHORT := "not packages and not long"
QUICK := tests/test_*.py tests/config tests/ipc tests/logring tests/schedule tests/scheduler tests/startup

.PHONY: help run test test-long test-quick test-repeat test-packages test-pythons test-newest test-lowest lint format bench bench-peers bench-growth fuzz soak soak-services soak-days soak-chaos docs man bundle zipapp dist deb rpm image release clean-dist lock audit clean

help:
	@echo "make run     start the daemon on examples/ringward.toml"
	@echo "make test-quick  run the tests that start no daemon, server or browser: about a minute"
	@echo "make test    run the tests, with daemons, for some minutes"
	@echo "make test-long   run the other tests: with PostgreSQL, most of the dashboard, kills, fresh daemons, generated clients"
	@echo "make test-repeat  run the tests of make test RUNS=20 times, every second time beside busy loops, and list what failed"
	@echo "make test-packages  build the distributions, and install them into fresh environments: some minutes"
	@echo "make test-pythons  run test-quick with every CPython from 3.11 up that this host has or can get, in .venv-3.11 and so on"
	@echo "make test-newest  run all tests with the newest versions of all dependencies, in .venv-newest"
	@echo "make test-lowest  run all tests with the lowest versions that setup.cfg allows, in .venv-lowest"
	@echo "make lint    run ruff and mypy, as CI does"
	@echo "make format  format the code"
	@echo "make fuzz    read damaged rings and log files for SECONDS=600, then call the API with random input"
	@echo "make soak    kill helpers at random for SECONDS=600, and compare every line"
	@echo "make soak-services  crash 200 services at random for SECONDS=600, and account for every run"
	@echo "make soak-days  kill the scheduler during days of schedules for SECONDS=600, and account for every instant"
	@echo "make soak-chaos  kill every process, even the root, while clients act for SECONDS=600, and compare every line"
	@echo "                 SOAK=--descriptor-store runs any of the four under a service manager that keeps descriptors"
	@echo "make bench   run the benchmarks, or those in ROWS=\"start idle\", and print a table"
	@echo "make bench-peers   compare with other process managers in PATH or BENCH_PEERS"
	@echo "make bench-growth  measure how costs grow with runs, tasks, services, followers and lines: a quarter of an hour"
	@echo "make docs    build the documentation, build/docs/index.html"
	@echo "make man     build the man pages ringward(1) and ringward.toml(5), build/man"
	@echo "make bundle  bundle the modules of the dashboard for a release, api/static/bundle; needs npm"
	@echo "make zipapp  build the single file, dist/ringward.pyz"
	@echo "make dist    build sdist, wheel, bill of materials and list of licences, dist/"
	@echo "make deb     build the Debian package, dist/ringward_VERSION_ARCHITECTURE.deb"
	@echo "make rpm     build the RPM package, dist/ringward-VERSION-1.ARCHITECTURE.rpm; needs rpmbuild"
	@echo "make image   build the container image localhost/ringward; needs buildah and mmdebstrap, but no registry of images"
	@echo "make release VERSION=0.2.0  release a version: checks, artefacts and tag; DRY_RUN=1 only checks that it can"
	@echo "make lock    choose the newest versions of what Ringward needs, and write their hashes to deploy/locked"
	@echo "make audit   check the locked packages against the package index and its security advisories"
	@echo "make clean   remove the environment, caches, and the data of the example"

run: $(VENV)/.run-installed
	@exec $(BIN)/ringward up --config examples/ringward.toml

test: $(VENV)/.dev-installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest $(SUITE) $(SHORT)

test-long: $(VENV)/.dev-installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest $(SUITE) long

test-quick: $(VENV)/.dev-installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --numprocesses=2 --quiet $(QUICK)

test-repeat: $(VENV)/.dev-installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.repeat $(RUNS) $(SUITE) $(SHORT)

test-packages: $(VENV)/.dev-installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -m packages tests/packages

test-pythons: $(VENV)/.dev-installed
	$(BIN)/python -m tests.pythons

test-newest:
	@rm -f .venv-newest/.dev-installed
	PIP_UPGRADE=1 PIP_UPGRADE_STRATEGY=eager LOCKED= $(MAKE) test test-long VENV=.venv-newest

test-lowest:
	@rm -f .venv-lowest/.dev-installed
	@mkdir -p build
	$(PYTHON) -m tests.lowest_versions > build/lowest-versions.txt
	LOCKED= PIP_CONSTRAINT="$(CURDIR)/build/lowest-versions.txt" $(MAKE) test test-long VENV=.venv-lowest

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
	$(BIN)/python -m tests.crash.harness $(SECONDS) $(SOAK)

soak-services: $(VENV)/.dev-installed
	$(BIN)/python -m tests.crash.services $(SECONDS) $(SOAK)
	$(BIN)/python -m tests.crash.services $(SECONDS) $(SOAK) --cgroups off

soak-days: $(VENV)/.dev-installed
	$(BIN)/python -m tests.crash.compressed_day $(SECONDS) $(SOAK)

soak-chaos: $(VENV)/.dev-installed
	$(BIN)/python -m tests.crash.chaos $(SECONDS) $(SOAK)

# The daemon runs in an environment like its users', because more packages in it slow down imports of gevent and peewee.
bench: $(VENV)/.dev-installed .venv-bench/.run-installed
	BENCH_RINGWARD="$(CURDIR)/.venv-bench/bin/ringward" $(BIN)/python -m bench $(ROWS)

bench-peers:
	$(MAKE) bench ROWS=peers

bench-growth: $(VENV)/.dev-installed .venv-bench/.run-installed
	BENCH_RINGWARD="$(CURDIR)/.venv-bench/bin/ringward" $(BIN)/python -m bench.growth $(ROWS)

docs: $(VENV)/.dev-installed
	$(BIN)/python -m sphinx -W -n --keep-going -q docs build/docs
	@echo build/docs/index.html

man: $(VENV)/.dev-installed
	$(BIN)/python -m sphinx -W -n --keep-going -q -b man docs build/man
	@echo build/man/ringward.1 build/man/ringward.toml.5

bundle: $(VENV)/.dev-installed
	@PYTHON=$(abspath $(BIN))/python sh deploy/bundle.sh

zipapp: $(VENV)/.dev-installed
	$(BIN)/python -m deploy.zipapp.build dist/ringward.pyz

dist: $(VENV)/.dev-installed
	$(BIN)/python -m deploy.release.build dist

deb: dist man
	$(BIN)/python -m deploy.debian.build dist build/man dist

rpm: dist man
	$(BIN)/python -m deploy.rpm.build dist build/man dist

image:
	sh deploy/container/build.sh ringward

release: $(VENV)/.dev-installed
	$(BIN)/python -m deploy.release.release $(VERSION) $(if $(DRY_RUN),--dry-run)

clean-dist:
	rm -rf dist

lock: $(VENV)/.dev-installed
	$(BIN)/python -m deploy.release.lock

audit: $(VENV)/.dev-installed
	$(BIN)/python -m deploy.release.audit

%/.run-installed: $(SOURCES)
	@sh deploy/environment.sh "$(PYTHON)" "$*" .
	@touch $@

$(VENV)/.dev-installed: $(SOURCES)
	@sh deploy/environment.sh "$(PYTHON)" "$(VENV)" ".[dev]"
	@touch $(VENV)/.run-installed $@

clean:
	rm -rf $(VENV) .venv-bench .venv-newest .venv-lowest .venv-3.* build dist api/static/bundle *.egg-info examples/data .mypy_cache .pytest_cache .ruff_cache .hypothesis

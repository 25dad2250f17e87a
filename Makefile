# Everything a person or a machine does with this tree. Needs make and Python 3.11-3.13; the rest
# is brought by packaging/scripts/prepare (system libraries through apt-get, packages by hashed locks).
#
#   make harnesses      bring the Claude and the Codex CLI along, as harnesses of the app
#   make run            the app            make run ARGS="doctor --json"   any other command line
#   make test           check, then every test in sessions of their own (display, bus, key store, home), four at once
#   make test ARGS="tests/unit -k wire"
#   make check          format, lint, types, import contracts
#   make soak           the long loops     make bench ARGS="start --plant slow"
.DEFAULT_GOAL := help
.PHONY: help install harnesses run test check soak bench screenshots lock clean

SHELL := /bin/sh
unexport PYTHONPATH PYTHONHOME MYPYPATH
ROOT := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
BIN := $(ROOT).venv/bin
PREPARE := $(ROOT)packaging/scripts/prepare
# Tests and benchmarks never see the session they are started from. Their files lie below a short
# path: Unix sockets have 108 bytes.
SESSION := $(BIN)/python $(ROOT)packaging/scripts/session.py --
PYTEST := $(BIN)/python -m pytest --basetemp={tmp}/p
ARGS ?=

help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))

install:
	@$(PREPARE) app

harnesses:
	@$(PREPARE) harnesses

run:
	@if [ -z '$(strip $(value ARGS))' ] && [ -z "$$DISPLAY" ] && [ -z "$$WAYLAND_DISPLAY" ]; then \
	    echo "remuda: there is no display here (neither WAYLAND_DISPLAY nor DISPLAY is set). Start it from a desktop session," >&2; \
	    echo "        or use the command line: make run ARGS='run \"What is the capital of France?\"'" >&2; exit 1; fi
	@$(PREPARE) app
	@exec $(BIN)/python -I -m desktop $(ARGS)

check:
	@$(PREPARE) dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

test: check
	$(BIN)/python $(ROOT)packaging/scripts/lanes.py $(ARGS)

soak:
	@$(PREPARE) dev
	$(SESSION) $(PYTEST) --soak --hypothesis-profile=soak -o faulthandler_timeout=3600 $(ARGS)

bench:
	@$(PREPARE) dev
	$(SESSION) $(BIN)/python -m tests.benchmarks $(if $(ARGS),$(ARGS),start stream idle storage journal loop wire)

screenshots:
	@$(PREPARE) dev
	$(SESSION) $(BIN)/python packaging/scripts/screenshots.py $(ARGS)

lock:
	@$(ROOT)packaging/scripts/lock.sh

clean:
	rm -rf .venv build dist artifacts .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

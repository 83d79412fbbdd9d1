# Two commands do everything on a machine with only Python and make: `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DALI_STAMP := $(VENV)/.dali
DEMO_ARGS ?=
DEMO := +experiment=phantom $(DEMO_ARGS)
.DEFAULT_GOAL := help

.PHONY: help setup dali demo test test-slow bench lint clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) $(DALI_STAMP)  ## Make the virtual environment and install everything

$(STAMP): requirements.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	touch $@

$(DALI_STAMP): $(STAMP) requirements-dali.txt data_generators/install_dali.sh
	@if command -v "$${CXX:-g++}" >/dev/null; then \
		bash data_generators/install_dali.sh $(BIN)/python >$(VENV)/dali.log 2>&1 \
		|| echo "NVIDIA DALI was not installed (see $(VENV)/dali.log); the TF generator works"; \
	else \
		echo "No C++ compiler: NVIDIA DALI is left out (later: make dali); the TF generator works"; \
	fi
	@touch $@

dali: $(STAMP)  ## Install NVIDIA DALI (needs a C++ compiler)
	bash data_generators/install_dali.sh $(BIN)/python

demo: setup  ## The main job on phantom scans: draw, prepare, train, evaluate, predict
	$(BIN)/python data_preparation/synthetic.py $(DEMO)
	$(BIN)/python data_preparation/preprocess_data.py $(DEMO)
	$(BIN)/python data_preparation/verify_data.py $(DEMO)
	$(BIN)/python train.py $(DEMO)
	$(BIN)/python predict.py $(DEMO)
	$(BIN)/python predict.py $(DEMO) 'DATASET.VAL.IMAGES_PATH=demo/data/Training Batch 1'
	$(BIN)/python evaluate.py $(DEMO)

test: setup  ## Run the tests, without those marked slow
	$(BIN)/python -m pytest -m "not slow" --numprocesses auto --maxprocesses 4 --dist loadscope

bench: setup  ## Measure everything that is said to be fast against its plain way, side by side
	for name in operators model input preparation evaluation; do $(BIN)/python -m benchmarks.$$name || exit; done
	$(BIN)/python -m benchmarks.readme

test-slow: setup  ## Run the tests that train for more than a minute
	$(BIN)/python -m pytest -m slow

lint: setup  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:  ## Remove what the demo wrote
	rm -rf demo

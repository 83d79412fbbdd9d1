# Two commands do everything on a machine with only Python and make: `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DALI_STAMP := $(VENV)/.dali
NGC := .venv-ngc
PYTEST := -m pytest -m "not slow" --numprocesses auto --maxprocesses 4 --dist loadscope
DEMO_ARGS ?=
DEMO := +experiment=phantom $(DEMO_ARGS)
.DEFAULT_GOAL := help

# The environment $(1) gets DALI, where there is a compiler for its TensorFlow plugin
define install_dali
@if command -v "$${CXX:-g++}" >/dev/null; then \
	bash data_generators/install_dali.sh $(1)/bin/python >$(1)/dali.log 2>&1 \
	|| echo "NVIDIA DALI was not installed (see $(1)/dali.log); the TF generator works"; \
else \
	echo "No C++ compiler: NVIDIA DALI is left out (later: make dali); the TF generator works"; \
fi
endef

.PHONY: help setup dali demo test test-ngc test-slow bench docs lint clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) $(DALI_STAMP)  ## Make the virtual environment and install everything

$(STAMP): requirements.txt requirements-export.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	touch $@

$(DALI_STAMP): $(STAMP) requirements-dali.txt data_generators/install_dali.sh
	$(call install_dali,$(VENV))
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
	$(BIN)/python $(PYTEST)

test-ngc: $(NGC)/.installed  ## Run them on the versions of NVIDIA's last TensorFlow image (Python 3.11 or 3.12)
	$(NGC)/bin/python $(PYTEST)

$(NGC)/.installed: requirements.txt requirements-export.txt requirements-dev.txt constraints-ngc.txt
	$(PYTHON) -m venv $(NGC)
	$(NGC)/bin/python -m pip install --quiet --upgrade pip
	cat $(filter requirements%,$^) | grep -v -e '^-r' -e '^tensorflow>' >$(NGC)/requirements.txt
	$(NGC)/bin/python -m pip install --quiet -c constraints-ngc.txt tensorflow-cpu -r $(NGC)/requirements.txt
	$(call install_dali,$(NGC))
	@touch $@

bench: setup  ## Measure everything that is said to be fast against its plain way, side by side
	for name in operators model input preparation evaluation; do $(BIN)/python -m benchmarks.$$name || exit; done
	$(BIN)/python -m benchmarks.readme

docs: setup  ## Write configs/README.md anew, after keys or their readers have changed
	$(BIN)/python -m utils.config_reference

test-slow: setup  ## Run the tests that train for more than a minute
	$(BIN)/python -m pytest -m slow

lint: setup  ## Check style, formatting, types and the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile

clean:  ## Remove what the demo wrote
	rm -rf demo

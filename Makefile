VENV ?= .venv
BUILD ?= build
PYTHON ?= python3
MESON_OPTIONS ?=

PY := $(VENV)/bin/python
MESON := $(PY) -m mesonbuild.mesonmain
INSTALLED := $(VENV)/.lazyt-requirements
INSTALL = $(MESON) install -C $(BUILD) --no-rebuild --only-changed --quiet
# meson looks for ninja on the path; the virtual environment has the pinned one.
export PATH := $(abspath $(VENV))/bin:$(PATH)
# Without these ccache refuses translation units that use the precompiled header.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime

.DEFAULT_GOAL := help
.PHONY: help build runtime configure demo test test-full test-sanitized test-models tiny format clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

$(INSTALLED): requirements.txt tools/build/system_packages.sh
	@bash tools/build/system_packages.sh
	@test -x $(PY) || { echo "== creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "== installing requirements.txt into $(VENV)"
	@$(PY) -m pip install --disable-pip-version-check -r requirements.txt
	@touch $@

$(BUILD)/build.ninja: $(INSTALLED)
	@echo "== configuring $(BUILD)"
	@test -e $@ && touch $@ || $(MESON) setup $(BUILD) $(MESON_OPTIONS)

configure: $(BUILD)/build.ninja

build: configure ## build everything and install it into the virtual environment
	@$(MESON) compile -C $(BUILD)
	@$(INSTALL)

# What is installed is a third less than everything.
runtime: configure
	@targets=$$($(PY) tools/build/installed_targets.py $(BUILD)) && ninja -C $(BUILD) $$targets
	@$(INSTALL)

demo: runtime ## train the MNIST network of the tutorial on the device, 14 epochs
	@$(PY) examples/mnist.py --epochs 14 --metrics

tiny: build ## the tests that need seconds
	@$(PY) tools/build/run_tests.py --tiny --build $(BUILD)

test: build ## the quick tests, minutes
	@$(PY) tools/build/run_tests.py --quick --build $(BUILD)

test-full: build ## everything: also sanitizer builds, fuzzers and slow tests
	@bash tools/build/system_packages.sh fuzz
	@$(PY) tools/build/run_tests.py --full --build $(BUILD)

test-sanitized: build ## the PyTorch frontend and its binding under the address and thread sanitizers
	@$(PY) tools/build/run_tests.py --sanitized --build $(BUILD)

test-models: build ## models of transformers and timm, the Trainer (installs requirements-models.txt), minutes
	@$(PY) -m pip install --disable-pip-version-check -r requirements-models.txt -c requirements.txt
	@$(PY) -m pytest -q tests/torch/test_hf_models.py tests/torch/test_hf_trainer.py tests/torch/test_timm_models.py

format: $(INSTALLED) ## format C, C++ and Python files
	@git ls-files '*.c' '*.h' '*.cpp' '*.hpp' | xargs -r $(VENV)/bin/clang-format -i
	@$(PY) -m ruff format .

clean: ## remove the build folders (the virtual environment stays)
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-asan-torch $(BUILD)-tsan-torch

# What a newcomer types: `make lab` and `make test`. `make help` lists the rest.
# Overridable: PYTHON (any Python >= 3.10), VENV, PIP_FLAGS (e.g. --no-index --find-links=wheels), LAB_FLAGS,
# TORCH (another version than constraints.txt names, in an environment of its own).

PYTHON ?= python3
TORCH ?=
with_torch := $(if $(TORCH),-torch-$(TORCH))
VENV ?= .venv$(with_torch)
PIP_FLAGS ?=
LAB_FLAGS ?=

python := $(VENV)/bin/python
ready := $(VENV)/.memlab-installed$(with_torch)
front_ends := $(VENV)/.memlab-front-ends$(with_torch)
pins := $(if $(TORCH),$(VENV)/constraints.txt,constraints.txt)
pytest := $(python) -m pytest
# One thread a process: two test processes share two cores, and byte counts do not depend on it.
cpu := MEMLAB_DEVICE=cpu OMP_NUM_THREADS=1 MPLBACKEND=Agg JUPYTER_PLATFORM_DIRS=1
kernels := 6.29 7.2

.DEFAULT_GOAL := help
.PHONY: help lab setup test test-all tests-here notebooks-here browser-here slow-here kernels-here lint \
	notebooks constraints gpu-check clean

help: ## Show this list
	@grep -hE '^[a-z-]+: .*?## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

lab: $(ready) ## Open JupyterLab on the bench notebook (installs on first use)
	$(VENV)/bin/memlab lab $(LAB_FLAGS)

setup: $(ready) ## Make the virtual environment and install, nothing else

$(ready): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "memlab needs Python 3.10 or later; $(PYTHON) is older: make PYTHON=python3.12 ..."; exit 2; }
	test -x $(python) || $(PYTHON) -m venv $(VENV)
	$(if $(TORCH),sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt > $(pins))
	$(python) -m pip install --quiet $(PIP_FLAGS) -c $(pins) -e ".[lab,test]"
	@touch $@

$(front_ends): $(ready)
	$(python) -m pip install --quiet $(PIP_FLAGS) -c $(pins) -e ".[front-ends]"
	@touch $@

test: $(ready) tests-here notebooks-here browser-here ## Run every test that fits in 12 minutes on 2 cores

test-all: test slow-here kernels-here ## Run the slow tests too, on more front ends and kernels

tests-here: $(ready)
	$(cpu) $(pytest) -n 2 --dist loadscope --doctest-modules tests memlab -m "not slow and not browser"

notebooks-here: $(ready)
	$(cpu) $(pytest) -n 2 --dist loadscope --nbval -p no:nbmake notebooks

browser-here: $(ready)
	$(cpu) $(pytest) tests -m "browser and not slow"

slow-here: $(front_ends)
	$(cpu) $(pytest) tests -m slow
	$(cpu) $(pytest) --nbmake notebooks

# Each old kernel lies in a folder of its own before the environment's packages.
kernels-here: $(ready)
	@for version in $(kernels); do \
		$(python) tools/kernel_folder.py $$version build/kernels/$$version || exit 1; \
		echo "ipykernel $$version"; \
		PYTHONPATH=build/kernels/$$version $(cpu) $(pytest) --nbval -p no:nbmake notebooks || exit 1; \
		PYTHONPATH=build/kernels/$$version $(cpu) $(pytest) tests -m browser || exit 1; \
	done

lint: $(ready) ## Check style and formatting
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

notebooks: $(ready) ## Write the notebooks anew from notebooks/src, executed on the CPU
	$(cpu) $(python) tools/notebooks.py

constraints: $(ready) ## Write constraints.txt from what is installed
	$(python) tools/constraints.py > constraints.txt.new && mv constraints.txt.new constraints.txt

gpu-check: ## Measure on a GPU, with PYTHON's own torch; needs pytest and numpy beside it
	$(PYTHON) tools/gpu_check.py

clean: ## Remove the virtual environment and what was built
	rm -rf $(VENV) build dist *.egg-info

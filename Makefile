# Every target builds what it needs in its own .venv, from nothing: `make test` in a fresh clone is enough.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

# The networks are small: more threads only wait for each other.
export OMP_NUM_THREADS ?= 1

# Tests start a hundred processes: none compiles our modules again, nor rewrites the tests' assertions.
unexport PYTHONDONTWRITEBYTECODE

# A file's tests stay together: they share what they train. Their order is that of tests/conftest.py. There is a worker
# more than cores, since some tests wait for other processes.
WORKERS := $(shell $(PYTHON) -c "import os; print(min(4, (os.cpu_count() or 1) + 1))")
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 10

# What `make wheel-check` tries the wheel on, as commands or paths: the oldest and the newest supported Python.
PYTHONS ?= python3.11 python3.13

# What `make quick` runs: the import order, oracles of the core and of both worlds, saved files, and short training runs.
QUICK := tests/test_architecture.py tests/mutation_selection.py tests/core/test_returns.py tests/core/test_losses.py \
  tests/core/test_argument_checks.py tests/core/test_vtrace.py tests/core/test_tasks.py tests/core/test_optimizers.py tests/core/test_inner_loop.py \
  tests/envs/collect_objects tests/envs/puddle_world tests/envs/functional/test_vector_env.py \
  tests/agents/test_builder.py tests/test_learner.py tests/storage/test_files.py \
  tests/test_a2c.py::test_every_task_trains_and_moves_the_encoder \
  tests/storage/test_resume.py::test_training_goes_on_from_a_file_as_if_never_stopped

.DEFAULT_GOAL := help
.PHONY: help install train quick test nightly coverage mutation lint signatures types docs linkcheck docs-data demo bench constraints wheel \
  wheel-check release-check check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $@

install: $(INSTALLED) ## Install the packages and the tools into .venv

quick: $(INSTALLED) ## Run a selection of the tests in less than a minute, as before a commit
	$(BIN)/python -m pytest -q -m "not slow" $(QUICK) -n $(WORKERS) --dist loadfile

test: $(INSTALLED) ## Run the tests, without the slow ones
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

nightly: $(INSTALLED) ## Run all tests, the slow ones too
	$(BIN)/python -m pytest $(PARALLEL)

coverage: $(INSTALLED) ## Run the tests and fail where too few lines and branches are reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not slow" $(PARALLEL)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

mutation: $(INSTALLED) ## Change the mathematics in hundreds of ways and list what no test notices
	$(BIN)/mutmut run
	$(BIN)/mutmut results

lint: $(INSTALLED) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

signatures: $(INSTALLED) ## Write the agents' constructors from dgvf_agents/hyperparameters.py
	$(BIN)/python -m tests.signatures

types: $(INSTALLED) ## Check types
	$(BIN)/mypy

docs: $(INSTALLED) ## Build the documentation into docs/_build/html; warnings are errors
	$(BIN)/python docs/generate_benchmark_page.py --check
	$(BIN)/python docs/generate_results_page.py --check
	$(BIN)/sphinx-build -E -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

linkcheck: $(INSTALLED) ## Check the links to other sites; needs the internet
	$(BIN)/sphinx-build -b linkcheck -q docs docs/_build/linkcheck

docs-data: $(INSTALLED) ## Renew what the documentation commits: reference numbers, pictures, benchmarks, pages
	$(BIN)/python docs/environment_data.py
	$(BIN)/python docs/draw_curves.py
	$(BIN)/python docs/draw_question.py
	$(BIN)/dgvf bench envs --output docs/results/bench-envs.json
	$(BIN)/dgvf bench agents --output docs/results/bench-agents.json
	$(BIN)/dgvf bench ppo --output docs/results/bench-ppo.json
	$(BIN)/dgvf bench population --output docs/results/bench-population.json
	$(BIN)/dgvf bench start --output docs/results/bench-start.json
	$(BIN)/dgvf bench impala --output docs/results/bench-impala.json
	$(BIN)/dgvf bench atari --output docs/results/bench-atari.json
	$(BIN)/dgvf bench first-hour --output docs/results/bench-first-hour.json
	$(BIN)/python docs/generate_benchmark_page.py

train: $(INSTALLED) ## Train discovered questions on CollectObjectsSmall-v0 into runs/, ten minutes
	$(BIN)/dgvf train collect-objects-small discovered --steps 500_000

demo: $(INSTALLED) ## Train the runs that the package ships again, fifteen minutes
	$(BIN)/dgvf train puddle-world discovered --out runs/demo/puddle-world
	$(BIN)/dgvf train collect-objects-small discovered --compile True --out runs/demo/collect-objects-small
	$(BIN)/python docs/ship_runs.py runs/demo
	$(BIN)/python docs/draw_question.py

bench: $(INSTALLED) ## Measure speed and memory, about two hours; runs/bench-*.json keep the results
	$(BIN)/dgvf bench envs --output runs/bench-envs.json
	$(BIN)/dgvf bench agents --output runs/bench-agents.json
	$(BIN)/dgvf bench ppo --output runs/bench-ppo.json
	$(BIN)/dgvf bench population --output runs/bench-population.json
	$(BIN)/dgvf bench start --output runs/bench-start.json
	$(BIN)/dgvf bench impala --output runs/bench-impala.json
	$(BIN)/dgvf bench atari --output runs/bench-atari.json
	$(BIN)/dgvf bench first-hour --output runs/bench-first-hour.json

constraints: $(INSTALLED) ## Fit constraints.txt to pyproject.toml; pins that still fit stay, delete those to renew
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --no-annotate --quiet \
	  --custom-compile-command "make constraints" --output-file constraints.txt

wheel: $(INSTALLED) ## Build the wheel and the source distribution into dist/, and check what a package index would
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

wheel-check: wheel ## Use the wheel alone on PYTHONS with the oldest and the newest libraries; keeps the table of it
	$(BIN)/python -m tests.wheel.check_wheel $(PYTHONS) --output docs/results/wheel.json

release-check: wheel ## Check the changelog, the citation, the distributions, and the size of the wheel; then wheel-check
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	  grep -q "^version: $$version$$" CITATION.cff || { echo "CITATION.cff must have the version $$version"; exit 1; }; \
	  test -z "$$(find dist -name '*.whl' -size +7M)" || { echo "the wheel must take at most 7 MB"; exit 1; }; \
	  grep -q "^## \[$$version\] - 20" CHANGELOG.md || { echo "CHANGELOG.md must have a date for $$version"; exit 1; }
	$(MAKE) --no-print-directory wheel-check

check: lint types test docs wheel ## Everything that continuous integration checks

clean: ## Remove .venv and everything else that was built
	rm -rf .venv docs/_build build dist runs mutants .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

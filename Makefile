# The two commands of the README. Each makes .venv when it is missing or out of date.
PYTHON ?= python3.11
SEED ?= 0
STEPS ?= 25000
VENV := .venv
BIN := $(VENV)/bin
TRAIN_FLAGS := --trainer SAC --env InvertedPendulum-v2 --custom_replay_buffer True --knn_baseline

# Quiet, private Rays in the tests, and readable logs.
export RAY_DEDUP_LOGS := 0
export RAY_USAGE_STATS_ENABLED := 0
# A worker a core and a thread a worker: torch's threads would stand in each other's way.
WORKERS ?= auto

.PHONY: train test lint format clean

train: $(VENV)/installed
	$(BIN)/python custom_training.py $(TRAIN_FLAGS) --total_timesteps $(STEPS) \
		--evaluation_num_episodes 10 --seed $(SEED) --local_dir results

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/installed: env/pinned.txt env/requirements.txt env/requirements-test.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-r env/requirements.txt -r env/requirements-test.txt
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

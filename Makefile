# Common commands. Each builds the environment that it needs; start with `make demo` and `make test`.

# `make VENV=.venv-3.13 PYTHON=3.13 tests` uses a separate environment.
export VENV ?= .venv

# Without bytecode, each of the thousands of test processes would compile the library again.
unexport PYTHONDONTWRITEBYTECODE

export PATH := $(abspath $(VENV))/bin:$(PATH)
export VIRTUAL_ENV := $(abspath $(VENV))

.PHONY: help env demo test guard test-all tests tests-all fuzz fuzz-graphs faults lint format lock wheel explore doctor bench-search bench-vta bench-accelerator bench-gpu bench-cpu bench-precision bench-shapes bench-accuracy papers conformance \
	conformance-torch zoo clean
.DEFAULT_GOAL := help

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env:  ## build VENV (.venv) from requirements.lock with PYTHON (3.11 to 3.14); TORCH=cpu: without support for GPUs
	@.ci/environment

demo: env  ## extract, tune, compile and time the networks of models.yaml
	snakemake --cores all

# More processes than cores (two in continuous integration), because workflow tests mostly wait.
PYTEST := python -m pytest --durations 30 --durations-min 5 --numprocesses 4 --dist loadfile --no-loadscope-reorder

# Lint runs in parallel with the tests: without a cache, mypy takes one core for half a minute.
test: env  ## lint, and test every module, every stage and every claim of README: 5 to 15 minutes on two cores
	@$(MAKE) --no-print-directory --jobs 2 lint tests

guard: env  ## run the other tests of .ci/run: faults, clusters, emulated GPUs, benchmarks, properties on more examples
	$(PYTEST) -m "(guard or property) and not slow and not gpu" --hypothesis-profile=more

test-all: env  ## run the tests of `make test` and `make guard`, and slow tests, which use more examples
	@$(MAKE) --no-print-directory --jobs 2 lint tests-all

tests: env  ## run the tests of `make test`, without lint
	$(PYTEST)

tests-all: env
	$(PYTEST) -m "not gpu" --hypothesis-profile=more

fuzz: env  ## search for counterexamples: property tests with new examples, and FUZZ_SECONDS (60) of fuzzing for each parser
	python -m pytest -m "property and not slow and not gpu" --hypothesis-profile=new --hypothesis-seed=random tests/contract tests/documents tests/extract tests/merge tests/search tests/space \
		tests/store tests/targets
	uv pip install --quiet --group fuzz
	for reader in shard documents spec lockfile database onnx; do \
		PYTHONPATH=lib python -m tests.fuzz $$reader --seconds $(or $(FUZZ_SECONDS),60) || exit 1; \
	done

fuzz-graphs: env  ## compare GRAPHS (2000) random ONNX graphs from SEED (0) with ONNX Runtime; resumes where it stopped
	PYTHONPATH=lib python -m tests.fuzz.graphs --graphs $(or $(GRAPHS),2000) --seed $(or $(SEED),0) --csv docs/results/data/fuzz_graphs.csv

faults: env  ## kill the stages FAULTS (500) times, fill their disks and more; writes docs/results/data/faults.csv
	python -m pytest tests/faults -m "not gpu" --faults $(or $(FAULTS),500) --faults-csv docs/results/data/faults.csv

lint: env  ## check style, types, imports, the workflow, and the budget of lines
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	snakefmt --check Snakefile rules lib
	snakemake --lint
	.ci/size
	.ci/prose

format: env  ## format the code
	ruff check --fix .
	ruff format .
	snakefmt Snakefile rules lib

lock: env  ## write requirements.lock from pyproject.toml
	uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-emit-index-url --output-file requirements.lock

wheel: env  ## build the wheel of a release, in dist/
	uv build --wheel --out-dir dist

explore: env  ## browse db/tuning.sqlite, with charts and queries
	anole explore

doctor: env  ## describe this machine and measure its peak speed
	anole doctor

bench-search: env  ## test the papers' claims, also on others' spaces (HUB=folder), and time tuners on entire networks, for MINUTES (unlimited); resumes where it stopped
	uv pip install --quiet --group bench --constraint requirements.lock
	PYTHONPATH=lib python -m benchmarks.search.run --minutes $(or $(MINUTES),inf) $(if $(HUB),--hub $(HUB))
	PYTHONPATH=lib python -m benchmarks.search.claims > docs/results/claims.md
	PYTHONPATH=lib python -m benchmarks.search.picture docs/results/data/search/tables.csv.xz \
		docs/results/data/search/searches.svg

bench-vta: env  ## simulate all design spaces of the accelerator that have no table yet, and time the simulator
	python -m benchmarks.vta.tables
	python -m benchmarks.vta.tables --models
	python -m benchmarks.vta.rate > docs/results/data/vta_rate.csv

bench-accelerator: env  ## find the exact Pareto front of an accelerator for seven networks; resumes where it stopped
	mkdir -p db/seven && cp examples/models.seven.yaml db/seven/models.yaml
	snakemake --cores all --directory db/seven accelerators/seven
	cp db/seven/accelerators/seven/front.csv docs/results/data/accelerator_front.csv

# Without `env`, which needs network access: any Python with the packages of requirements.lock works.
bench-gpu:  ## run all GPU benchmarks on this machine, for MINUTES (9); resumes where it stopped
	PYTHONPATH=lib python -m benchmarks.cuda.whole --target cuda --folder $(or $(FOLDER),docs/results/data/gpu) --minutes $(or $(MINUTES),9)

papers: env  ## tune, compile and time all networks of the papers (examples/models.papers.yaml); takes hours
	cp examples/models.papers.yaml .
	PYTHONPATH=lib python -m benchmarks.networks.papers
	snakemake --cores all --config spec=models.papers.yaml

# Networks from ONNX and from torch have the same kernels; the roofline shows only the latter.
bench-cpu: papers  ## compare the papers' networks with other engines, and their kernels with the roofline
	uv pip install --quiet --group bench
	uv pip install --quiet --group rivals --no-deps
	PYTHONPATH=lib python -m benchmarks.networks.compare builds/* > docs/results/data/networks.csv
	PYTHONPATH=lib python -m benchmarks.kernels.roofline kernels $$(ls -d builds/* | grep -v _onnx) > docs/results/data/kernels.csv
	PYTHONPATH=lib python -m benchmarks.kernels.roofline picture docs/results/data/roofline.svg < docs/results/data/kernels.csv
	PYTHONPATH=lib python -m benchmarks.networks.report < docs/results/data/networks.csv
	PYTHONPATH=lib python -m benchmarks.networks.picture docs/results/data/networks.svg < docs/results/data/networks.csv

bench-precision: env  ## compare networks in float32, bf16 and int8 with other engines
	uv pip install --quiet --group bench --group zoo --constraint requirements.lock
	uv pip install --quiet --group zoo-files --no-deps
	PYTHONPATH=lib python -m benchmarks.networks.precision > docs/results/data/precision.csv

bench-shapes: env  ## compare builds for ranges of sizes with builds for fixed sizes and with other engines
	uv pip install --quiet --group bench --group zoo --constraint requirements.lock
	uv pip install --quiet --group zoo-files --no-deps
	PYTHONPATH=lib python -m benchmarks.networks.sizes > docs/results/data/sizes.csv

bench-accuracy: env  ## compare the outputs of trained networks in float32, bf16 and int8 with ONNX Runtime
	uv pip install --quiet --group zoo --constraint requirements.lock
	uv pip install --quiet --group zoo-files --no-deps
	PYTHONPATH=lib python -m benchmarks.networks.accuracy > docs/results/data/accuracy.csv

conformance: env  ## run ONNX's backend test suite against Anole; takes minutes
	PYTHONPATH=lib python -m benchmarks.zoo.conformance > conformance.csv.part
	mv conformance.csv.part docs/results/data/conformance.csv

conformance-torch: env  ## run torch's sample inputs of its operators against Anole; takes an hour or more
	PYTHONPATH=lib python -m benchmarks.zoo.torch_operators > torch_operators.csv.part
	mv torch_operators.csv.part docs/results/data/torch_operators.csv

zoo: env  ## test more than 200 published networks, untuned; takes hours; resumes where it stopped
	uv pip install --quiet --group zoo --constraint requirements.lock
	uv pip install --quiet --group zoo-files --no-deps
	PYTHONPATH=lib python -m benchmarks.zoo.sweep docs/results/data/zoo.csv --mutate
	PYTHONPATH=lib python -m benchmarks.zoo.report < docs/results/data/zoo.csv

clean:  ## remove all build products, but keep all measurements
	rm -rf builds work .snakemake logs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .fuzz

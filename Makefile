# Every target does its own set-up (tools/setup.sh) and is quick to repeat. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo jobs test test-gpu test-all build install chaos storm python test-python-all bench bench-precision bench-plan bench-loading bench-gpu figures hostile format lint asan tsan fuzz clean setup
# Compilers at a time, by cores and memory; asked for when a recipe runs, as setup brings the Python that counts.
JOBS = $$(python3 tools/machine.py jobs)
PREFIX ?= /usr/local
BENCH_SIZES := 4,1KiB,64KiB,1MiB,16MiB,100MiB,256MiB
BENCH_RANKS := 2 4
# ThreadSanitizer wants its shadow memory at fixed places, which kernels with much address randomisation take away.
STILL := $(shell setarch -R true 2>/dev/null && echo setarch -R)

# configure(preset, folder): only when there is nothing yet, or another Python; CMake notices its own files by itself.
define configure
if [[ ! -f $(2)/build.ninja || build/python_path -nt $(2)/build.ninja ]]; then \
  python=$$(<build/python_path); cmake --preset $(1) -DCOHORT_PYTHON="$${python/#none/}"; fi
endef

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:
	@tools/setup.sh build

demo: setup ## Fashion-MNIST on two workers: progress, a table, a report and a trace to look at; builds what that needs, half of all
	@$(call configure,default,build)
	@cmake --build --preset default -j $(JOBS) --target cohort cohort-worker
	@build/bin/cohort train configs/fashion_cnn.yaml -n 2 --out build/demo/run --set checkpoint.resume=never

# A job is configs/NAME.yaml and docs/jobs/NAME.md; job_data_NAME: what tools/jobs/data.py brings for it; job_then_NAME: what follows.
JOB_NAMES := mnist_mlp fashion_horovod asl regression autoencoder gpt headlines bert_pair bert_single bert_tagging bert_qa
job_data_mnist_mlp := mnist
job_data_asl := signs
job_data_gpt := news
job_data_headlines := news
$(foreach job,pair single tagging qa,$(eval job_data_bert_$(job) := bert))
job_sets_fashion_horovod := --set epochs=8
job_then_asl := build/bin/cohort predict build/jobs/asl data/signs/A.png data/signs/K.png data/signs/Y.png
job_then_gpt := build/bin/cohort generate build/jobs/gpt --prompt 'The government' --temperature 0.8 --top-k 40
job_then_headlines := build/bin/cohort generate build/jobs/headlines --prompt 'trump says' --tokens 6 --temperature 0.7 --texts 5

$(addprefix job-,$(JOB_NAMES)): job-%: setup
	@$(call configure,default,build)
	@cmake --build --preset default -j $(JOBS) --target cohort cohort-worker
	@$(if $(job_data_$*),"$$(<build/python_path)" tools/jobs/data.py $(job_data_$*))
	@build/bin/cohort train configs/$*.yaml -n 2 --out build/jobs/$* --set checkpoint.resume=never $(job_sets_$*)
	@$(job_then_$*)

jobs: $(addprefix job-,$(JOB_NAMES)) ## every job of docs/jobs/ one after the other, minutes each; one of them: make job-asl

build: setup ## build/bin/cohort, the libraries and the tests
	@$(call configure,default,build)
	@cmake --build --preset default -j $(JOBS)
	@$(if $(filter build,$(MAKECMDGOALS)),echo 'the program is build/bin/cohort; add it: export PATH="$(CURDIR)/build/bin:$$PATH"')

install: build ## build, then install the programs, libraries and headers into PREFIX (/usr/local)
	@cmake --install build --prefix "$(PREFIX)" >build/install.log
	@echo 'the program is $(PREFIX)/bin/cohort; build/install.log lists every file'

test: build ## build, then every test but the slow ones: labels `unit` and `process`, flaky ones into build/flaky.txt
	@python3 tools/run_tests.py build -LE slow

test-gpu: setup ## what needs a GPU, on a machine that has one: kernels beside the processor's loops, and training there
	@$(call configure,default,build)
	@[[ -e /dev/nvidia0 ]] || { echo 'test-gpu: this machine has no NVIDIA GPU (/dev/nvidia0): make build compiles the tests of the kernels, and none can run'; exit 1; }
	@cmake --build --preset default -j $(JOBS) --target $$(ninja -C build -t targets all | sed -n 's/^\(gpu[a-z_]*_test\): phony$$/\1/p')
	@python3 tools/run_tests.py build -R '^gpu'

test-all: build ## the same with the slow ones: every fault scenario, a storm of hostile connections, all Python tests
	@python3 tools/run_tests.py build

chaos: build ## every fault of docs/reliability.md against real jobs, into build/chaos.jsonl; CHAOS_TRIES (200), CHAOS_ROWS, CHAOS_SEED, CHAOS_MINUTES
	@python3 tests/chaos/chaos.py build/bin build/chaos.jsonl --tries $(or $(CHAOS_TRIES),200) --rows $(or $(CHAOS_ROWS),all) --seed $(or $(CHAOS_SEED),1) $(if $(CHAOS_MINUTES),--minutes $(CHAOS_MINUTES))

storm: build ## an hour of random faults against elastic jobs, into build/storm.jsonl; STORM_MINUTES (60), STORM_SEED (1), STORM_JOB: one job again
	@python3 tests/chaos/storm.py build/bin build/storm.jsonl --minutes $(or $(STORM_MINUTES),60) --seed $(or $(STORM_SEED),1) --keep build/storm $(if $(STORM_JOB),--job $(STORM_JOB))

python: setup ## the Python package into the Python that has torch (.venv): pip install .
	@"$$(<build/python_path)" tools/can_build_wheels.py
	@echo 'building and installing the package into '"$$(<build/python_path)"': minutes the first time'
	@COHORT_CMAKE_DIR=build "$$(<build/python_path)" -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps .

test-python-all: build ## the Python package's tests, the long ones too
	@COHORT_BUILD=build "$$(<build/python_path)" -m pytest -q tests/python

bench: build ## all-reduce against Open MPI and Gloo, into build/bench/*.jsonl
	@mkdir -p build/bench
	@for n in $(BENCH_RANKS); do \
	  build/bin/cohort bench all_reduce -n $$n --size $(BENCH_SIZES) --against openmpi,openmpi-tuned,gloo --json \
	    | tee build/bench/all_reduce-$$n.jsonl; done

bench-precision: build ## accuracy of bf16 and fp16 against fp32 on Fashion-MNIST, three seeds each: minutes
	@bench/precision.py --cohort build/bin/cohort

figures: build ## loss against time and bytes of strategies, from runs on Fashion-MNIST, into docs/strategies.svg; FIGURE_WORKERS (4), FIGURE_STEPS (160), FIGURE_EPOCHS
	@bench/strategies.py --cohort build/bin/cohort --workers $(or $(FIGURE_WORKERS),4) $(if $(FIGURE_EPOCHS),--epochs $(FIGURE_EPOCHS),--steps $(or $(FIGURE_STEPS),160)) --json build/figures.jsonl --figure docs/strategies.svg \
	  --only "all_reduce;ad_psgd;local_sgd(h=8);diloco(h=40);all_reduce +topk(ratio=0.01);dpsgd(graph=ring);parallel_sgd"

bench-plan: build ## memory and step time as `cohort plan` predicts them against what runs measure
	@bench/plan.py build/bin

bench-loading: build ## what loading and augmenting cost of the shortest training step
	@bench/loading.py build/bin

bench-gpu: build ## on a machine with a GPU: updates and GPT-2 beside torch eager and torch.compile: about ten minutes
	@"$$(<build/python_path)" bench/gpu.py build/bin

hostile: build ## a million hostile connections to a running job, step times with and without, into build/hostile.jsonl: about twenty minutes; HOSTILE_JOBS=fixed,elastic,hosts,nodes
	@tests/hostile/check.py build/bin storm

format: ## rewrite the sources and docs/modules.svg as the style wants them
	@tools/setup.sh lint
	@tools/lint.sh format
	@tools/modules.py --draw >/dev/null

lint: setup ## formatting, clang-tidy on the torch-free modules, include dependencies between modules
	@tools/setup.sh lint
	@$(call configure,default,build)
	@tools/lint.sh check-format
	@tools/modules.py --check >/dev/null
	@tools/lint.sh tidy

asan: setup ## the torch-free modules' tests under AddressSanitizer and UBSan
	@$(call configure,asan,build-asan)
	@cmake --build --preset asan -j $(JOBS)
	@UBSAN_OPTIONS=print_stacktrace=1 python3 tools/run_tests.py build-asan -LE tree

tsan: setup ## the torch-free modules' tests under ThreadSanitizer
	@$(call configure,tsan,build-tsan)
	@$(STILL) cmake --build --preset tsan -j $(JOBS)
	@TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 $(STILL) python3 tools/run_tests.py build-tsan -LE tree -E MoreThan4294967296Elements

fuzz: setup ## each fuzzer for FUZZ_SECONDS (20)
	@tools/setup.sh fuzz
	@$(call configure,fuzz,build-fuzz)
	@cmake --build --preset fuzz -j $(JOBS)
	@tools/fuzz.sh

clean: ## remove what was built (.venv stays)
	rm -rf build build-debug build-asan build-tsan build-fuzz

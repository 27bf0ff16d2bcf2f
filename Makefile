# make sweep   installs what is missing, builds, runs the main job on the model that ships here
# make test    installs what is missing, builds, passes every test
# The rest is for those who work on Ropewalk: see CONTRIBUTING.md.
# A compiler takes up to 900 MB and Ninja runs two more of them than there are cores. With less memory than
# that, or other work on the machine: CMAKE_BUILD_PARALLEL_LEVEL=1 make sweep
BUILD ?= build
CMAKE_ARGS ?=
# Kernels for GPUs take minutes to compile: make cuda, or CMAKE_ARGS=-DROPEWALK_CUDA=ON.
CONFIGURE = cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DROPEWALK_CUDA=OFF -DROPEWALK_MPI=OFF \
  -DROPEWALK_BUILD_PYTHON=OFF $(CMAKE_ARGS)
# The Python package needs nanobind and numpy, which are in a virtual environment (scripts/venv.sh).
WITH_PYTHON = -DROPEWALK_BUILD_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/.venv-python/bin/python

.PHONY: all build package sweep test test-torch test-ranks cluster ray wheel release release-check cuda bench results parity parity-llamacpp evidence \
  zoo fuzz lint format docs charts atlas sanitize tsan leaks valgrind clean
all: build

build:
	scripts/deps.sh build
	$(CONFIGURE) -DROPEWALK_BUILD_TESTS=OFF
	cmake --build $(BUILD)

# Half a minute on two cores: fewer windows and prompts than a sweep has by itself, and chains of assignments beside it.
SWEEP = --lengths 1024,2048,4096 --tasks perplexity,passkey,kv,ruler:vt --anchors 4 --samples 2 --questions 8

sweep: build
	scripts/deps.sh sweep
	scripts/heldout_text.sh > $(BUILD)/heldout.txt
	$(BUILD)/ropewalk sweep models --text $(BUILD)/heldout.txt $(SWEEP) -o $(BUILD)/sweep

test: build
	scripts/deps.sh test sweep python
	scripts/venv.sh python tests/python/requirements.txt
	$(CONFIGURE) -DROPEWALK_BUILD_TESTS=ON $(WITH_PYTHON)
	cmake --build $(BUILD)
	scripts/heldout_text.sh > $(BUILD)/heldout.txt
	ctest --test-dir $(BUILD) -j2 --output-on-failure --no-tests=error

# The program and the Python package in the build, and the text that both are tried on.
package: build
	scripts/deps.sh python sweep
	scripts/venv.sh python tests/python/requirements.txt
	$(CONFIGURE) -DROPEWALK_BUILD_TESTS=OFF $(WITH_PYTHON)
	cmake --build $(BUILD)
	scripts/heldout_text.sh > $(BUILD)/heldout.txt

# The Python package with PyTorch, and the examples in Python, under transformers 4.57 and 5.
test-torch: package
	scripts/test_torch.sh $(BUILD)

# One sequence over ranks of MPI, in a build that has it: as threads, as processes, over a slowed link.
test-ranks:
	scripts/deps.sh build test ranks
	$(CONFIGURE) -DROPEWALK_BUILD_TESTS=ON -DROPEWALK_MPI=ON
	cmake --build $(BUILD) --target ropewalk ranks_test ranked_engine_test ranked_mpi
	ctest --test-dir $(BUILD) -R '^(ranks|ranked_engine|ranked_mpi_.|ranks_cli)$$' --output-on-failure --no-tests=error

# Sweeps by several processes on a real SLURM of one node and under mpirun, some of them killed.
cluster: build
	scripts/deps.sh slurm sweep
	scripts/slurm_test.sh $(BUILD)

# The same with Ray, from Python.
ray: package
	scripts/ray_test.sh $(BUILD)

# $(BUILD)/wheel: the Python package for others, installed and tried on every Python from 3.10 on that is here.
# CUDA=1: with the kernels for GPUs.
wheel:
	scripts/deps.sh build python
	scripts/wheel.sh $(BUILD)

# $(BUILD)/release: the files of a release, from the last commit (docs/releasing.md).
release:
	scripts/deps.sh build python release
	scripts/release.sh $(BUILD)/release

# A release made twice, bit for bit, and its Debian package in a clean system: as root.
release-check: release
	scripts/release_check.sh $(BUILD)/release

# With nvcc: everything with the kernels for GPUs in it, and what a machine without a GPU can check of them.
cuda:
	$(MAKE) test BUILD=$(BUILD)/cuda CMAKE_ARGS='-DROPEWALK_CUDA=ON $(CMAKE_ARGS)'

# SMOKE=1: every benchmark once with small sizes, to see that it runs.
bench: build
	scripts/deps.sh test
	$(CONFIGURE) -DROPEWALK_BUILD_BENCH=ON
	cmake --build $(BUILD)
	bench/run.sh $(BUILD) $(if $(SMOKE),--smoke)

# Every published table again, against its committed rows: RESULTS="embedded*" takes minutes, all of them hours.
RESULTS ?= *
results: build
	scripts/deps.sh sweep
	scripts/results.py $(BUILD) $(foreach name,$(RESULTS),'$(name)')

# What articles claim (docs/evidence), measured again and compared with its committed rows: minutes.
evidence: package
	scripts/evidence.py $(BUILD)

# A small model for each encoding, trained and measured to 8 times its length: docs/results/zoo, hours. ONLY=alibi,rope: these;
# SEEDS=1: each once; SMOKE=1: two models by a few steps.
zoo: package
	scripts/deps.sh parity
	"$$(scripts/parity_env.sh)"/bin/python scripts/zoo.py $(BUILD) $(if $(SMOKE),--smoke) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(SEEDS),--seeds $(SEEDS))

parity: build
	scripts/deps.sh test sweep parity
	$(CONFIGURE) -DROPEWALK_BUILD_TESTS=ON
	cmake --build $(BUILD) --target encoder_dump logits_dump rotary_dump key_tokens_dump
	scripts/parity.sh $(BUILD)

parity-llamacpp: build
	scripts/deps.sh test parity llamacpp
	$(CONFIGURE) -DROPEWALK_BUILD_TESTS=ON
	cmake --build $(BUILD) --target logits_dump rotary_dump
	scripts/parity_llamacpp.sh $(BUILD)

# Every test under address and undefined-behaviour sanitizers; some of the test programs, and no more built than they
# need, with make sanitize SANITIZED="model eval".
SANITIZED ?=
sanitize:
	scripts/deps.sh build test sweep ci
	cmake -S . -B $(BUILD)/sanitize -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  -DROPEWALK_LARGE_GROUPS=ON -DROPEWALK_SANITIZE=address,undefined $(CMAKE_ARGS)
	cmake --build $(BUILD)/sanitize $(if $(SANITIZED),--target $(SANITIZED:%=%_test))
	ctest --test-dir $(BUILD)/sanitize -j2 --output-on-failure --no-tests=error \
	  $(if $(SANITIZED),-R "^($$(echo $(SANITIZED) | tr ' ' '|'))$$")

# The parallel parts under clang's thread sanitizer, and every function of the C interface by eight threads at once;
# TSAN="ranks linear": these test programs alone.
TSAN ?=
tsan:
	scripts/deps.sh build test ci
	scripts/tsan.sh $(BUILD) $(TSAN)

# Every command of the program under the leak sanitizer, by the tests of the program; LEAKS="kv_cli": these alone.
LEAKS ?=
leaks: build
	scripts/deps.sh test sweep
	scripts/leaks.sh $(BUILD) $(LEAKS)

# Unit tests under valgrind's memcheck, with kernels without vectors; VALGRIND="io rotary": these alone.
VALGRIND ?=
valgrind:
	scripts/deps.sh build test valgrind
	scripts/valgrind.sh $(BUILD) $(VALGRIND)

# FUZZED="gguf writers": those targets alone.
FUZZED ?=
fuzz:
	scripts/deps.sh build test ci
	scripts/fuzz.sh 12 $(FUZZED)

# The linter over what changed since the branch left origin/main, or since LINT_BASE; ALL=1: over everything.
lint:
	scripts/deps.sh build test python ci
	scripts/lint.sh $(if $(ALL),--all)

format:
	scripts/deps.sh ci
	git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format -i

# $(BUILD)/site: the documentation, the API reference and the reports of committed sweeps as static pages with search.
docs: build
	scripts/deps.sh docs
	scripts/docs_site.sh $(BUILD)

# The pictures that are committed: their numbers from the library, then the pictures from committed numbers.
charts: build
	scripts/deps.sh test
	$(CONFIGURE) -DROPEWALK_BUILD_TESTS=ON
	cmake --build $(BUILD) --target chart_numbers
	$(BUILD)/tests/docs/chart_numbers > docs/charts.json
	scripts/docs_charts.py

# docs/atlas: the committed results on one page.
atlas: build
	scripts/atlas.sh $(BUILD) > $(BUILD)/atlas.md
	mv $(BUILD)/atlas.md docs/atlas/README.md

clean:
	rm -rf $(BUILD)

# Two commands do all the set-up: `make serve` and `make test`. VENV and MODEL may be overridden.
VENV ?= .venv
PYTHON ?= python3
MODEL ?=
bin := $(VENV)/bin
# One more than a small machine has cores: tests wait a lot, for servers to start, to drain and to time out.
workers := 3
native := $(wildcard native/*.* native/src/*.* native/src/*/*.* native/src/*/*/*.*)

.PHONY: install serve test test-all sanitize-address sanitize-undefined sanitize-thread check-levels check-neon \
	cross-tools lint bench clean

install: $(VENV)/.installed

serve: install
	$(bin)/tribar serve $(MODEL)

test: $(VENV)/.test
	$(bin)/python -m pytest -m "not long" -n $(workers) --dist worksteal

test-all: cross-tools lint $(VENV)/.test sanitize-address sanitize-undefined sanitize-thread check-levels check-neon
	$(bin)/python -m pytest -n $(workers) --dist worksteal

# The native tests against a build of its own with that sanitizer. The runtime must come first in the process, and the
# plain interpreter must not see the installed module: hence the preload and the path.
sanitize-address: library := libasan.so
sanitize-undefined: library := libubsan.so
sanitize-thread: library := libtsan.so
sanitize-address sanitize-undefined sanitize-thread: sanitize-%: $(VENV)/.native
	PATH="$(abspath $(bin)):$$PATH" cmake -S native -B build/$* -G Ninja -DTRIBAR_SANITIZE=$* \
		-DPython_EXECUTABLE=$(abspath $(bin))/python --install-prefix=$(abspath build/$*/site)
	PATH="$(abspath $(bin)):$$PATH" cmake --build build/$*
	rm -rf build/$*/site && mkdir build/$*/site && cp -R src/tribar build/$*/site && rm -f build/$*/site/tribar/runtime/native/*.so
	PATH="$(abspath $(bin)):$$PATH" cmake --install build/$*
	ASAN_OPTIONS=detect_leaks=0 \
	LD_PRELOAD="$$(g++ -print-file-name=$(library)) $$(g++ -print-file-name=libstdc++.so.6)" \
	PYTHONPATH="build/$*/site:$$($(bin)/python -c 'import site; print(site.getsitepackages()[0])')" \
		$(PYTHON) -m pytest -o pythonpath=. tests/unit/runtime/native

# The kernels of every level of this CPU against the portable ones, and each row alone against the row in company.
check-levels: $(VENV)/.native
	PATH="$(abspath $(bin)):$$PATH" cmake -S native/tests -B build/levels -G Ninja
	PATH="$(abspath $(bin)):$$PATH" cmake --build build/levels
	build/levels/level_check

# The same for 64-bit Arm, emulated: on a CPU with everything, on one with dot products and little more, and on one
# without, which must get the portable level and never meet an instruction that it lacks.
check-neon: cross-tools $(VENV)/.native
	PATH="$(abspath $(bin)):$$PATH" cmake -S native/tests -B build/neon -G Ninja -DCMAKE_SYSTEM_NAME=Linux \
		-DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static
	PATH="$(abspath $(bin)):$$PATH" cmake --build build/neon
	qemu-aarch64 -cpu max build/neon/level_check neon
	qemu-aarch64 -cpu neoverse-n1 build/neon/level_check neon
	qemu-aarch64 -cpu cortex-a72 build/neon/level_check portable

cross-tools:
	@command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null || { echo >&2 \
		"check-neon needs a cross-compiler and an emulator: apt-get install g++-aarch64-linux-gnu qemu-user"; exit 1; }

lint: $(VENV)/.test
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/python -m pytest tests/architecture

bench: install
	$(bin)/python -m benchmarks

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(bin)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(VENV)/.installed: pyproject.toml $(native) $(VENV)/.pip
	$(bin)/python -m pip install --quiet --editable .
	touch $@

# Most of torch and of what the clients bring is never imported: what is, is compiled then.
$(VENV)/.test: pyproject.toml $(VENV)/.installed
	$(bin)/python -m pip install --quiet --no-compile --group test --group lint
	touch $@

$(VENV)/.native: pyproject.toml $(VENV)/.test
	$(bin)/python -m pip install --quiet --group native
	touch $@

# Every target sets up what it needs; a second call only does the work.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test check coverage soak lowest flower-versions lint bench docs clean tools
run: $(VENV)/.installed
	$(BIN)/fedro run

# Files of tests run side by side, one on each of two cores.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.peers tools
	$(PYTEST) -m "not soak"

check: lint $(VENV)/.peers tools
	FEDRO_HYPOTHESIS=quick $(PYTEST) -m "not slow" -x

# Which lines of the package the tests run, in all the processes they start. Left out: a federation, which is too
# slow when it is traced, and a full disk, on which the tracer cannot write either.
coverage: $(VENV)/.peers tools
	$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST) --ignore tests/flower/test_deployment.py --deselect tests/cli/test_run.py::test_a_full_disk_is_said_and_the_run_can_go_on
	-$(BIN)/coverage combine --quiet 2> /dev/null # a process that was killed leaves half a file
	$(BIN)/coverage report --skip-covered --show-missing --precision 1 --fail-under 95

# Hours of trouble: kills, hostile numbers and files, errors put in on purpose.
soak: $(VENV)/.peers
	PYTHONPATH=tests/helpers $(BIN)/python tests/soak/flat.py --rounds 2000
	$(BIN)/python tests/soak/kills.py --times 50
	PYTHONPATH=tests/helpers $(BIN)/python tests/soak/hostile.py --matrices 10000
	FEDRO_HYPOTHESIS=deep $(BIN)/pytest tests/test_fuzz.py
	$(BIN)/pytest -n 2 --dist loadfile -m soak
	$(BIN)/python tests/soak/mutants.py

# The fast tests with the lowest versions that pyproject.toml allows (of all but torch and Flower).
lowest:
	test -x $(VENV)-lowest/bin/python || $(PYTHON) -m venv $(VENV)-lowest
	(cat constraints.txt; $(PYTHON) tests/lowest.py) > $(VENV)-lowest/lowest.txt
	PIP_CONSTRAINT=$(VENV)-lowest/lowest.txt $(VENV)-lowest/bin/python -m pip install --quiet --editable '.[dev,data]'
	$(VENV)-lowest/bin/python -m pip install --quiet --no-deps --requirement tests/peers.txt
	$(VENV)-lowest/bin/python -m pytest -o filterwarnings=default -m "not slow" --ignore tests/flower --ignore tests/rules/test_peers.py

# The tests of deployment with the oldest and the newest Flower that pyproject.toml allows. Each is installed into a
# folder of its own without its dependencies, because the newest version may ask for packages that are not to be had.
FLOWER_VERSIONS := 1.40.0 1.42.0
flower-versions: $(VENV)/.peers tools
	for version in $(FLOWER_VERSIONS); do \
		folder=$(CURDIR)/$(VENV)/flwr-$$version; \
		test -d $$folder || $(BIN)/python -m pip install --quiet --no-deps --target $$folder flwr==$$version || exit 1; \
		PYTHONPATH=$$folder $(BIN)/python -c "from importlib.metadata import version; print('Flower', version('flwr'))"; \
		PYTHONPATH=$$folder $(PYTEST) tests/flower -m "not soak" || exit 1; \
	done

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.peers
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/attacks.py
	$(BIN)/python benchmarks/train.py

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(VENV)-lowest site out runs dist

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,flower,ray]'
	touch $@

$(VENV)/.peers: $(VENV)/.installed tests/peers.txt
	$(BIN)/python -m pip install --quiet --no-deps --requirement tests/peers.txt
	touch $@

# Programs that tests need: Chromium for pages, the others for a federation with TLS and keys.
# Where they cannot be had, these tests skip and say so.
tools:
	@missing=""; \
	for pair in chromium:chromium openssl:openssl ssh-keygen:openssh-client curl:curl ps:procps nginx:nginx; do \
		PATH="$$PATH:/usr/sbin" command -v "$${pair%%:*}" > /dev/null || missing="$$missing $${pair#*:}"; \
	done; \
	for name in chromium-browser google-chrome; do \
		command -v $$name > /dev/null && missing="$${missing# chromium}"; \
	done; \
	test -n "$$missing" && command -v apt-get > /dev/null || exit 0; \
	as_root="env"; test "$$(id -u)" = 0 || as_root="sudo -n env"; \
	install="$$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends$$missing"; \
	echo "$$install"; \
	$$install > /dev/null || { $$as_root apt-get update > /dev/null && $$install > /dev/null; } \
		|| echo "$$missing: could not be installed, the tests that need them will be skipped."; \
	case "$$missing" in *nginx*) $$as_root systemctl disable --now nginx > /dev/null 2>&1 || true;; esac # not as a service

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs,flower,ray]'
	touch $@

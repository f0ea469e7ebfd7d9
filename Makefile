# Everything is in flashlab/bootstrap.py; without make: python3 -m flashlab lab (or test).
PYTHON ?= python3

lab:  ## set up .venv if there is none, then JupyterLab on the start page (make lab ARGS=--no-browser)
	@$(PYTHON) -m flashlab lab $(ARGS)

test:  ## the same set-up, then lint and the whole test suite
	@$(PYTHON) -m flashlab test

notebooks:  ## build notebooks/, exercises/ and solutions/ from course/
	@.venv/bin/python course/build.py

lock:  ## resolve the versions in constraints.txt anew (needs uv); torch, triton and NVIDIA's libraries stay out of it
	uv pip compile pyproject.toml --universal --python-version 3.11.0 --all-extras --upgrade --no-header --no-annotate --no-emit-index-url -o .lock.tmp >/dev/null
	grep -vE '^(torch|triton|nvidia-|cuda-)' .lock.tmp > constraints.txt && rm .lock.tmp

gate-3.6:  ## compile the shipped configurations with triton 3.6.0, the version of the recorded H200 runs (FLASHLAB_GATE=all: for every GPU and format)
	@test -d .gate/triton-3.6.0 || $(PYTHON) -m pip --python .venv/bin/python install -q --no-deps --target .gate/triton-3.6.0 triton==3.6.0
	@PYTHONPATH=.gate/triton-3.6.0 .venv/bin/python -m pytest -q -m gate

.PHONY: lab test notebooks lock gate-3.6

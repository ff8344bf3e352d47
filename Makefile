# The front door. Each verb installs what it lacks (make setup says what that is) and may be run again at any time.
# What does not fit a line is Rust: runtime/xtask.

export PATH := $(HOME)/.cargo/bin:$(PATH)
XTASK := sh runtime/xtask/cargo.sh && cargo xtask

.DEFAULT_GOAL := help
.PHONY: help setup build test demo bench bench-workloads lint format clean

help:  ## this list
	@echo 'make VERB, where VERB is one of'
	@sed -n 's/^\([a-z-]*\):  *## */  \1\t/p' $(MAKEFILE_LIST) | expand -t 20
	@echo 'ARGS=... hands flags on, e.g. make test ARGS="--only vm"; make test ARGS=--help lists them.'

setup:  ## install everything that the other verbs need
	@$(XTASK) setup $(ARGS)

build:  ## the agent, target/release/qosm, and the default modules, target/policies/*.wasm
	@$(XTASK) build $(ARGS)

test:  ## all tests: unit, modules, this machine's kernel (as root), a small VM with cgroup v2
	@$(XTASK) test $(ARGS)

demo:  ## a throttled web server, then the same with CPU Burst (as root; otherwise a recorded run); then pages that come home
	@$(XTASK) demo $(ARGS)

bench:  ## the benches behind the README's numbers
	@$(XTASK) bench $(ARGS)

bench-workloads:  ## memory QoS under overcommit, in a VM with cgroup v2: none against auto (about six minutes)
	@$(XTASK) bench-workloads $(ARGS)

lint:  ## formatting, clippy, licences and advisories of dependencies
	@$(XTASK) lint $(ARGS)

format:  ## rustfmt over everything
	@sh runtime/xtask/cargo.sh && cargo fmt --all

clean:  ## forget everything that was built
	@cargo clean

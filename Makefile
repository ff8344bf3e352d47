# The front door. Each verb installs what it lacks (make setup says what that is) and may be run again at any time.
# What does not fit a line is Rust: runtime/xtask.

export PATH := $(HOME)/.cargo/bin:$(PATH)
XTASK := sh runtime/xtask/cargo.sh xtask && cargo xtask
VERSION := $(shell sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n1)
IMAGE ?= ghcr.io/qosm/qosm:$(VERSION)
HELM ?= helm
PREFIX ?= /usr/local

.DEFAULT_GOAL := help
.PHONY: help setup build test test-all demo soak bench bench-workloads bench-fleet bench-colocation cluster registry publish lint format book install uninstall deb image manifests manuals clean

help:  ## this list
	@echo 'make VERB, where VERB is one of'
	@sed -n 's/^\([a-z-]*\):[^#]*## */  \1\t/p' $(MAKEFILE_LIST) | expand -t 20
	@echo 'ARGS=... hands flags on, e.g. make test ARGS="--only uml"; make test ARGS=--help lists them.'

setup:  ## install everything that the other verbs need
	@$(XTASK) setup $(ARGS)

build:  ## target/release/qosm, target/release/qosm-policy, and the default modules, target/policies/*.wasm
	@$(XTASK) build $(ARGS)

test:  ## the tests: unit, modules, this machine's kernel (as root), cgroup v2 in guests, registries, a cluster (as root)
	@$(XTASK) test $(ARGS)

test-all:  ## the same, and what takes long: before an issue is closed and before a release
	@$(XTASK) test --all $(ARGS)

soak:  ## hours of kill -9 at random moments, and a million ticks: nothing lost, left behind or grown (as root)
	@$(XTASK) soak $(ARGS)

demo:  ## a throttled web server, then the same with CPU Burst (as root; otherwise a recorded run); then pages that come home
	@$(XTASK) demo $(ARGS)

bench:  ## the benches behind the README's numbers
	@$(XTASK) bench $(ARGS)

bench-workloads:  ## memory QoS under overcommit, in a VM with cgroup v2: none against auto (about six minutes)
	@$(XTASK) bench-workloads $(ARGS)

bench-fleet:  ## ten thousand nodes' reports at a real API server, and what one agent takes beside it
	@$(XTASK) bench-fleet $(ARGS)

bench-colocation:  ## a server alone, beside batch work, and beside the same under qosm: latency against utilisation (as root, about seven minutes)
	@$(XTASK) bench-colocation $(ARGS)

cluster:  ## a cluster of one node on this machine with this build's image in it, to try things out (as root); prints what to type
	@$(XTASK) cluster up --node --image $(ARGS)

registry:  ## container registries on this machine (open, with a password, with TLS, with referrers) to push to; prints what to type
	@$(XTASK) registry up $(ARGS)

publish:  ## the default modules to REGISTRY=HOST[/PREFIX], with where they came from; signed with ARGS="--key cosign.key"
	@test -n '$(REGISTRY)' || { echo 'error: REGISTRY is not said' >&2; echo '  help: make publish REGISTRY=ghcr.io/you/policies ARGS="--key cosign.key"' >&2; exit 2; }
	@$(XTASK) publish '$(REGISTRY)' $(ARGS)

lint:  ## formatting, clippy, licences and advisories of dependencies
	@$(XTASK) lint $(ARGS)

format:  ## rustfmt over everything
	@sh runtime/xtask/cargo.sh && cargo fmt --all

book:  ## the book of docs/ as a site, target/book/index.html (what stands in it is held true by make test)
	@$(XTASK) book $(ARGS)

# Built as who types it, installed as root.
install: build  ## programs, modules, completions, manual pages and systemd's unit, to PREFIX=/usr/local (as root); nothing is started
	@sudo=; [ "$$(id -u)" = 0 ] || [ -n '$(DESTDIR)' ] || sudo=sudo; \
	$$sudo "$${CARGO_TARGET_DIR:-target}/debug/xtask" install --prefix '$(PREFIX)' --destdir '$(or $(DESTDIR),/)' $(ARGS)

uninstall:  ## take that away again, as the xtask that was built last knows it; what is configured and what an agent keeps stays
	@sudo=; [ "$$(id -u)" = 0 ] || [ -n '$(DESTDIR)' ] || sudo=sudo; \
	$$sudo "$${CARGO_TARGET_DIR:-target}/debug/xtask" install --prefix '$(PREFIX)' --destdir '$(or $(DESTDIR),/)' --remove

deb: build  ## a Debian package of the same: target/qosm_VERSION_ARCHITECTURE.deb
	@$(XTASK) deb $(ARGS)

# No builder: docs/decisions/0030-images-without-a-builder.md.
image: build  ## the container image of what was built, for this machine's architecture, named IMAGE: target/qosm-image.tar
	@$(XTASK) image --name '$(IMAGE)' $(ARGS)

# The API version list is pinned, so that every helm renders the same.
manifests: build  ## CRDs from their types, and deploy/manifests/qosm.yaml from the chart (needs helm)
	@command -v $(HELM) >/dev/null 2>&1 || { \
		echo 'error: helm is not there' >&2; \
		echo '  help: see https://helm.sh/docs/intro/install, or go install helm.sh/helm/v4/cmd/helm@v4.3.1' >&2; \
		exit 1; \
	}
	@mkdir -p deploy/helm/qosm/crds
	@for crd in policymodules nodepolicyreports; do \
		"$${CARGO_TARGET_DIR:-target}/release/qosm" crds $$crd > deploy/helm/qosm/crds/$$crd.yaml || exit 1; \
	done
	@{ cat deploy/manifests/head.yaml && $(HELM) template qosm deploy/helm/qosm --namespace qosm-system --kube-version 1.33.0 \
		--api-versions admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy $(ARGS); } > deploy/manifests/qosm.yaml.new
	@mv deploy/manifests/qosm.yaml.new deploy/manifests/qosm.yaml

manuals: build  ## docs/cli.md and docs/cli-policy.md, the reference of the commands, from their flags
	@for program in qosm:cli qosm-policy:cli-policy; do \
		"$${CARGO_TARGET_DIR:-target}/release/$${program%:*}" manual > docs/$${program#*:}.md.new || exit 1; \
		mv docs/$${program#*:}.md.new docs/$${program#*:}.md; \
	done

clean:  ## forget everything that was built
	@cargo clean

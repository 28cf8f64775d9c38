# SPDX-License-Identifier: Apache-2.0
# `make help` lists the commands. Each installs what it needs and says so; `setup` is enough for those of CONTRIBUTING.md.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv/bin
CARGO := cargo
# A wheel of the switch in place of a build: `make run WHEEL=out/dist/apswitch-...whl`.
ifdef WHEEL
export WHEEL
export APSWITCH := $(CURDIR)/.venv/bin/apswitch
endif
TARGET ?= apswitch

# What `make run` and `make lab` take on the command line, as `make run PROFILE=wimax SECONDS=60`.
# bash has a variable SECONDS of its own: only what stands on make's command line counts.
given = $(if $(filter command line,$(origin $(1))),--$(2) '$($(1))')
LINK_ARGS = $(call given,PROFILE,profile) $(call given,DOWN,down) $(call given,UP,up) $(call given,RTT,rtt) $(call given,CC,cc) \
	$(call given,TARGET,target) $(call given,LAB,lab) $(call given,FALLBACK,fallback) $(call given,CLOCK,clock) $(if $(WMEDIUMD),--wmediumd) $(if $(WPA2),--wpa2)
RUN_ARGS = $(LINK_ARGS) $(call given,SECONDS,seconds) $(call given,ARMS,arms)
EXPERIMENT_ARGS = $(if $(RESUME),,$(RUN_ARGS) $(call given,REPEATS,repeats) $(call given,SEED,seed) $(if $(FRESH),--fresh)) $(if $(QUICK),--quick) \
	$(call given,SIDE_BY_SIDE,side-by-side)

.PHONY: help setup runtime system python develop apswitch switch hosts host-tools run test asked tested test-all quick check check-text check-native check-rust check-python p4 ns3 wifi-kernel ptf conformance versions mutants bench hostile foreign docs dist release audit lab fleet experiment client screenshots cases experiments report pages campaign

##@ Set up
help: ## list the commands, each with its variables
	@awk -F ':.*## ' '/^##@ / {print "\n" substr($$0, 5)} /^[a-z0-9-]+:.*## / {at = index($$2, ": "); \
		printf "  make %-12s %s\n", $$1, at ? substr($$2, 1, at - 1) : $$2; if (at) print "                    " substr($$2, at + 2)}' $(MAKEFILE_LIST)

setup: runtime develop ## install dependencies, also of tests and checks, and build the switch, or take it from a wheel: WHEEL=apswitch-...whl

# pip waits for the network while cargo computes.
runtime: system ## install the dependencies of `make run` alone, and build the switch
	@$(MAKE) --no-print-directory -j2 python apswitch

system:
	@tools/install.sh system

python:
	@tools/install.sh python

develop:
	@tools/install.sh develop

apswitch: $(if $(WHEEL),python)
	@PARTS='--bin apswitch --bin simple_switch_grpc --bin simple_switch' tools/install.sh switch

switch: $(if $(WHEEL),python) ## build the switch, its C library, the sender of frames and the end hosts' programs
	@$(if $(WHEEL),true,tools/install.sh bpf)
	@tools/install.sh switch

hosts: runtime host-tools ## build `hosts`, the transports of end hosts

host-tools:
	@tools/install.sh bpf
	@tools/progress.py cargo "hosts" -- $(CARGO) build --release --bin hosts --bin batcp

##@ Run and measure
run: runtime ## run the headline experiment: PROFILE=testbed|wlan|wimax|lte SECONDS=24 DOWN=14mbit UP=1mbit RTT=4ms CC=cubic ARMS=fifo,ncr TARGET=bmv2 LAB=mininet-wifi CLOCK=virtual
	@$(VENV)/python -m accesspoint.experiments run headline --fresh $(RUN_ARGS)

experiment: hosts ## run an experiment: NAME=ncr-testbed|all QUICK=1 ARMS=... REPEATS=3 CLOCK=virtual LAB=ns3 SIDE_BY_SIDE=2 SEED=2 RESUME=1
	@$(VENV)/python -m accesspoint.experiments $(if $(RESUME),resume,run) $(or $(NAME),headline) $(EXPERIMENT_ARGS)

experiments: python ## list the experiments
	@$(VENV)/python -m accesspoint.experiments list

report: python ## build the pages of all results in out/index.html
	@$(VENV)/python -m accesspoint.experiments report

pages: python ## build docs/results and the first pages from the results in out/
	@$(VENV)/python -m accesspoint.experiments report --pages docs/results
	@$(VENV)/python tools/site/figures.py
	@$(VENV)/python -m accesspoint.experiments.verdict.judge

audit: develop ## compute the figures of docs/results again, and count those that cannot be: STRICT=1 allows none
	@$(VENV)/python -m accesspoint.experiments.verdict.recompute --check $(if $(STRICT),--strict)
	@$(VENV)/python -m accesspoint.checks.bench.publish --check $(if $(STRICT),--strict)

campaign: hosts develop ## many runs on a Dask cluster: NAME=... FULL=1 WORKERS=2 LAB=ns3 SCHEDULER=tcp://host:8786 REPEATS=3
	@$(VENV)/python -m accesspoint.experiments campaign $(NAME) $(if $(FULL),,--quick) $(call given,WORKERS,workers) \
		$(call given,CLOCK,clock) $(call given,LAB,lab) $(call given,SCHEDULER,scheduler) $(call given,REPEATS,repeats) $(if $(FRESH),--fresh)

lab: runtime ## start a lab with controller, live page and Mininet's prompt: STATIONS=1 PROFILE=testbed|wlan|wimax|lte DOWN=14mbit UP=1mbit RTT=4ms CC=cubic TARGET=bmv2, SHARED=1 for one downlink for all, LAB=mininet-wifi ACCESS_POINTS=1
	@$(VENV)/python -m accesspoint.topologies.lab $(LINK_ARGS) $(call given,STATIONS,stations) $(call given,ACCESS_POINTS,access-points) $(if $(SHARED),--shared)

fleet: runtime ## start three access points with agents, two replicas of the service and NATS, in namespaces: AGENTS=3 BACKUPS=1
	@tools/install.sh fleet
	@$(VENV)/python -m accesspoint.topologies.fleet $(call given,AGENTS,agents) $(call given,BACKUPS,backups)

ns3: runtime switch ## install ns-3's wheel (300 MB) and compile the project's C++ against it, for LAB=ns3
	@tools/install.sh ns3

wifi-kernel: ## build a user-mode kernel with radios, for LAB=mininet-wifi where this one has no mac80211_hwsim
	@tools/wifi-kernel.sh

##@ Check a switch
ptf: runtime develop ## run the packet tests: TARGET=apswitch|bmv2
	@$(VENV)/python ptf-tests/run.py --target $(TARGET)

conformance: runtime ## P4Runtime and v1model conformance suite: TARGET=apswitch|bmv2 SECTION=9.1 ONLY=TEXT MARKDOWN=1; AGAINST=bmv2: packet by packet; STF=DIRECTORY: p4c's packet cases
	@$(VENV)/python -m $(if $(STF),accesspoint.checks.conformance.stf '$(STF)',accesspoint.checks.conformance $(call given,SECTION,section)) --target $(TARGET) \
		$(call given,ONLY,only) $(call given,AGAINST,against) $(call given,PACKETS,packets) $(call given,PROGRAM,program) $(if $(MARKDOWN),--markdown)

versions: runtime ## run the packet tests with the p4c and the targets on PATH, for docs/results/versions.md
	@$(VENV)/python tools/versions.py

bench: hosts switch develop ## speed and memory as ratios within one run, into out/bench/: ROWS=memory_mb,p4runtime of the switch only, BESIDE=another/apswitch
	@$(VENV)/python -m accesspoint.checks.bench.switch $(call given,ROWS,only) $(call given,BESIDE,beside)
ifeq ($(ROWS),)
	@$(VENV)/python -m accesspoint.checks.bench.controller.agent
	@$(VENV)/python -m accesspoint.checks.bench.controller.service
	@tools/install.sh fleet
	@$(VENV)/python -m accesspoint.checks.bench.controller.fleet
	@$(VENV)/python -m accesspoint.checks.bench.hosts
endif

hostile: hosts switch develop ## attack every server, in a network of its own, into out/hostile/: ONLY=gnmi-*,batcp-proxy SHORT=1 PAGE=docs/results/hostile.md
	@$(VENV)/python -m accesspoint.checks.hostile $(call given,ONLY,only) $(if $(SHORT),--short) $(call given,PAGE,page)

FOLDERS = TUTORIALS:tutorials P4C:p4c FINSY:finsy ONOS:onos P4_UTILS:p4-utils MININET_WIFI:mininet-wifi MININET:mininet BMV2:bmv2
foreign: runtime ## run clients of other projects, unmodified: TARGET=apswitch|bmv2 ONLY=pypi|NAME PAGE=docs/results/foreign.md, and checkouts: TUTORIALS=DIR P4C=DIR FINSY=DIR ONOS=DIR P4_UTILS=DIR MININET_WIFI=DIR MININET=DIR BMV2=DIR
	@tools/install.sh foreign
	@$(VENV)/python -m accesspoint.checks.foreign --target $(TARGET) $(call given,ONLY,only) $(call given,PAGE,page) \
		$(foreach pair,$(FOLDERS),$(call given,$(firstword $(subst :, ,$(pair))),$(lastword $(subst :, ,$(pair)))))

mutants: runtime develop ## mutation tests of the packet tests, on apswitch: ONLY=TEXT RENEW=1
	@$(VENV)/python -m accesspoint.ptf_tests.mutants $(if $(ONLY),--only '$(ONLY)',--all) $(if $(RENEW),--renew)

##@ Test
# What is built is built side by side: each has a long end on one core.
test: asked tested ## all tests whose outcome is independent of the machine's load: PART=check|rust|switch|hosts|controller|topologies|experiments|project|ptf
	@$(VENV)/python tools/test.py $(PART)

test-all: asked tested ## the same, then tests in real time, radios, ns-3, packages in fresh roots, mutants and BMv2: PART=...
	@tools/install.sh ns3 || echo "ns-3 is missing; the tests that need it will say so"
	@$(VENV)/python tools/test.py --all $(PART)

asked:
	@$(or $(PYTHON),python3) tools/test.py --asked $(PART)

tested: system
	@$(MAKE) --no-print-directory -j2 switch develop
	@$(MAKE) --no-print-directory host-tools
	@tools/install.sh tests
	@tools/install.sh foreign || echo "the clients of PyPI are missing; the tests that need them will say so"
	@$(VENV)/python -m accesspoint.topologies.targets
	@$(VENV)/python -m accesspoint.topologies.wifi.requirements || true

quick: asked develop ## lint, words, types, and tests without labs of what changed since main: PART=controller
	@$(VENV)/python tools/test.py --quick $(PART)

##@ Documents, packages and generated files
docs: develop ## build the documentation's site into out/site
	@NO_MKDOCS_2_WARNING=1 $(VENV)/python -m mkdocs build

check: check-text check-native check-python check-rust ## format, lint, types and imports

SHELLS = $(shell git ls-files '*.sh' 'packaging/debian/*/p*') apctl .ci/run
NATIVE = $(shell git ls-files 'topologies/**/*.cc' 'topologies/**/*.h' 'hosts/**/*.c' 'hosts/**/*.cc' 'hosts/**/*.h' 'checks/**/*.c')

check-text: develop
	$(VENV)/python tools/words.py
	$(VENV)/shellcheck $(SHELLS)
	$(VENV)/clang-format --dry-run -Werror $(NATIVE)
	$(VENV)/oxlint --deny-warnings controller/web

check-native: develop # C and C++
	tools/tidy.sh

check-rust: system
	@tools/install.sh bpf
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --quiet --workspace --all-targets -- -D warnings

# In no package. PTF loads packet_test, whose imports are found only there.
SCRIPTS = $(filter-out examples/packet_test/%,$(wildcard examples/*.py examples/*/*.py hosts/peers/*.py))

check-python: develop
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/mypy $(SCRIPTS)
	$(VENV)/lint-imports

dist: develop ## build wheels, sdist, Debian packages, checksums and an SBOM into out/dist
	@tools/install.sh packages
	@$(VENV)/python -m tools.dist

release: ## build what `dist` builds, if every published figure can be audited
	@$(MAKE) --no-print-directory audit STRICT=1
	@$(MAKE) --no-print-directory dist

screenshots: hosts develop ## renew the pictures of the live page in docs/images, from a lab with real TCP: LOOK=folder for every view
	@$(VENV)/python tools/screenshots.py $(call given,LOOK,look)

client: develop ## renew the typed client of the REST API from its OpenAPI document
	@$(VENV)/python tools/client.py

cases: develop ## renew the packet cases that p4testgen makes of p4src, with the p4testgen on PATH
	@$(VENV)/python -m accesspoint.checks.conformance.stf.testgen renew

p4: ## compile p4src with p4c and renew the committed goldens
	@tools/goldens.sh renew

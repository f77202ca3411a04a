# The README's two commands are `make demo` and `make test`. Each sets up all it needs from the toolchains alone. What a test cannot
# look at for want of an optional program, or of the right to mount a disk in memory, it tells in a line that begins with SKIPPED.
#
#   make demo           the story on an embedded network: put, share, lose four of them, read back
#   make test           every test, the long ones scaled down; SKIPPED names what this machine does not let them look at
#   make lint           formatting, clippy, tidy
#   make shows-network  what the first network must show, in full
#   make shows-ground   what the ground made sure must show, in full; LINES="2 4" for some of it
#   make shows-stripes  what stripes must show, in full; LINES as above
#   make shows-objects  what versioned objects must show, as far as it is there; LINES as above; wants redis-server
#   make shows-repair   what repair must show, as far as it is there; LINES as above
#   make shows-committee what certified heads must show, as far as it is there; LINES as above
#   make bench-transfer a large file in and out, beside MinIO, Kubo and Tahoe-LAFS (installs them: minutes, once)
#
# Compiled files lie outside the clone, so that clean checkouts share compiled dependencies.

SHELL := /bin/bash
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
export CARGO_TARGET_DIR ?= $(CACHE)/holdfast/target
# A clone of another place has other paths; incremental files would only fill the shared folder there.
export CARGO_INCREMENTAL ?= 0
CARGO ?= cargo
LOCKED := --locked

.PHONY: demo test lint fmt bench build unsealed shows-network shows-ground shows-stripes shows-objects shows-repair shows-committee bench-transfer

build:
	$(CARGO) build $(LOCKED) --package hold

demo:
	$(CARGO) run $(LOCKED) --quiet --package hold -- demo

test:
	$(CARGO) test $(LOCKED) --workspace --no-fail-fast
	$(MAKE) unsealed

# The control build: with sealing switched off the same search must find the planted markers.
# It replaces the program in the target folder, so the one that was there is put back, whatever ends the test. Of the
# workspace, as the tests are, so that what others made is compiled once for both; ours is not optimised for the one run.
PROGRAM = $(CARGO_TARGET_DIR)/debug/hold
unsealed:
	rm -f "$(PROGRAM).sealed"
	if [ -e "$(PROGRAM)" ]; then cp -p "$(PROGRAM)" "$(PROGRAM).sealed"; fi
	trap 'exit 130' HUP INT TERM; trap 'trap "" HUP INT TERM; mv -f "$(PROGRAM).sealed" "$(PROGRAM)" 2>/dev/null || rm -f "$(PROGRAM)"' EXIT; \
	$(CARGO) test $(LOCKED) --config 'profile.dev.opt-level=0' --workspace --features hold/unsealed --test unsealed

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	$(CARGO) run $(LOCKED) --quiet --package xtask -- tidy

fmt:
	$(CARGO) fmt --all

bench:
	$(CARGO) bench $(LOCKED) --package store --package rpc

bench-transfer:
	$(CARGO) run $(LOCKED) --quiet --package xtask -- bench transfer

shows-network:
	tests/shows-network

shows-ground:
	LINES_ONLY="$(LINES)" tests/shows-ground

shows-stripes:
	LINES_ONLY="$(LINES)" tests/shows-stripes

shows-objects:
	LINES_ONLY="$(LINES)" tests/shows-objects

shows-repair:
	LINES_ONLY="$(LINES)" tests/shows-repair

shows-committee:
	LINES_ONLY="$(LINES)" tests/shows-committee

# The commands of this project. `make run` and `make test` need Rust and, for
# what is missing besides, a Debian system.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
PHAROS := $(TARGET)/release/pharos
export PHAROS_BIN := $(PHAROS)

.PHONY: help run build test lint conformance bench bench-authority bench-reload \
        bench-answers bench-instructions bench-shuffle bench-cache bench-drain prove-shards lab fuzz clean

help:
	@echo "make run                start pharos dev: sample zones on loopback"
	@echo "make test               formatting, lints, every test"
	@echo "make conformance        100,000 questions to Pharos, Knot, NSD and BIND; real clients"
	@echo "make prove-shards       all shards of the two full designs: no three workers twice"
	@echo "make lab [SEEDS=5000]   simulated clusters of caches, and drains, one for each seed"
	@echo "make bench              all benchmarks: bench-{authority,reload,answers,instructions,shuffle,cache,drain}"
	@echo "make fuzz [SECONDS=60]  every fuzz target for a bounded time"

run: build
	scripts/need tour
	$(PHAROS) dev

build:
	scripts/need build
	$(CARGO) build --release --locked -p pharos

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Everything tests need is installed by now, so none may be skipped; `CI= make
# test` lets those pass that this machine cannot run. The peers are compared with
# the binary that tests build anyway: `make conformance` takes the released one,
# whose build takes as long as all of this.
test: export PHAROS_BIN := $(TARGET)/debug/pharos
test:
	scripts/need build test
	$(MAKE) lint
	CI=$${CI-true} $(CARGO) test --workspace --locked

conformance: build
	scripts/need test
	$(CARGO) run --release --locked -p conformance -- differ --pharos $(PHAROS) --queries 100000
	$(CARGO) run --release --locked -p conformance -- clients --pharos $(PHAROS)

bench: bench-authority bench-reload bench-answers bench-instructions bench-shuffle bench-cache bench-drain

bench-authority: build
	scripts/need bench
	$(CARGO) run --release --locked -p bench -- authority --pharos $(PHAROS)

bench-reload: build
	$(CARGO) run --release --locked -p bench -- reload --pharos $(PHAROS)

# With large pages, as the server has them.
bench-answers:
	scripts/need bench
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(CARGO) run --release --locked -p bench -- answers

bench-instructions:
	scripts/need bench
	$(CARGO) run --release --locked -p bench -- instructions

bench-shuffle:
	$(CARGO) run --release --locked -p bench -- shuffle

bench-cache: build
	scripts/need bench
	$(CARGO) run --release --locked -p bench -- cache --pharos $(PHAROS)

bench-drain:
	scripts/need build
	$(CARGO) run --release --locked -p bench -- drain

# Some minutes; needs 400 MB of memory.
prove-shards:
	scripts/need build
	$(CARGO) test --release --locked -p shuffle --test full_designs -- --ignored --nocapture --test-threads 1

# LAB_SEED=7 runs the world of one seed, with its trace.
SEEDS ?= 5000
lab:
	scripts/need build
	LAB_SEEDS=$(SEEDS) $(CARGO) test --release --locked -p lab --test seeds --test drains -- --nocapture

SECONDS ?= 60
fuzz:
	scripts/need build fuzz
	fuzz/run $(SECONDS)

clean:
	$(CARGO) clean

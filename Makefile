# The two commands that a newcomer needs:
#
#   make demo    replays token 33 against token 34, on real processes
#   make test    runs the tests
#
# Each says what it is about to install, and installs only what is missing. Further:
#
#   make check   formatting, lints and documentation, with warnings as errors
#   make page    serves a page on this machine that plays all scenarios, and opens it in a browser
#   make screenshots  plays token 33 against token 34, and saves its page and its panels for the README
#   make package builds both commands with manual pages and completions into target/package, as the
#                image does
#   make seeds   runs real clients of Redlock against a network that fails by a seed, 1000 times
#   make schemathesis  sends some thousand generated requests to a storage server, and compares its
#                answers with its OpenAPI document
#   make terraform  lets Terraform or OpenTofu itself, which must be installed, keep its state in a
#                storage server
#   make at-length  runs the tests that take minutes: object-storage, the hammer during failovers, further
#                failovers, and larger models of Redlock
#   make failovers  fails over a PostgreSQL of three members, by Patroni, also beneath the lab's clients and
#                under its hammer; FENCED_RUNS=20 make failovers plays each of the lab's scenarios 20 times
#   make object-storage  hammers at object storage for minutes, also at one that the fence can't hold on
#   make slow-clients  lets slow clients attack a storage server, and measures what they cost others
#   make bench   measures the storage server, the fence in PostgreSQL and MariaDB, the locks of each
#                lock service, and those on a majority of several Redis nodes
#   make model   checks all states of the models of Redlock that are too large for a test

INSTALLED := redis-server etcd zookeeper openssl curl postgresql patroni pgbouncer mariadb sqlite3 prometheus wrk \
	strace systemd python seaweedfs s3s-fs azurite node chromium chromedriver slowhttptest
.PHONY: demo page screenshots test test-locks test-programs test-lab test-others test-model check package seeds \
	schemathesis terraform at-length at-length-clusters at-length-models failovers object-storage slow-clients \
	bench model $(INSTALLED)

# The lab runs its clients and servers as itself. The two other commands share all libraries with it.
COMMANDS := --package lab --package lock-client-cli --package storage-server

demo: redis-server
	cargo build $(COMMANDS)
	target/debug/lab replay

page: redis-server
	cargo build $(COMMANDS)
	target/debug/lab serve

# `make test` leaves this out, because it changes files of the project.
SCREENSHOTS := screenshots
screenshots: redis-server node chromium chromedriver
	cargo test $(SERVICES) --test main $(SCREENSHOTS)
	cp target/tmp/page-33-34-light.png target/tmp/page-33-34-dark.png docs/
	cargo build $(COMMANDS)
	target/debug/lab replay --html docs/33-34.html

# Tests mostly wait, so several run at once on each core, in four streams: locks, the two programs, the lab,
# and all others. The tests of the model of Redlock compute. They run in the time that these leave.
#
# Their servers keep data in memory if the system has a folder with 512 MiB for each test that runs: new
# databases are then made in a fraction of the time. Tests kill processes, not machines, and lose no
# more there.
test: redis-server etcd zookeeper openssl curl postgresql patroni pgbouncer mariadb sqlite3 prometheus strace systemd python seaweedfs node chromium chromedriver
	cargo test $(SERVICES) --no-run
	cargo test --package redlock-model --no-run
	free=$$(df --output=avail /dev/shm 2> /dev/null | tail -n 1); \
	if [ "$${free:-0}" -ge $$(((4 * $(CORES) + 3) * 524288)) ] && \
			! grep -q ' /dev/shm .*noexec' /proc/mounts; then \
		export TMPDIR=$$(mktemp -d /dev/shm/fenced-tests-XXXXXX); \
		trap 'rm -rf "$$TMPDIR"' EXIT INT TERM; \
		chmod 755 "$$TMPDIR"; \
	fi; \
	$(MAKE) --jobs=5 test-locks test-programs test-lab test-others test-model

CORES := $(shell getconf _NPROCESSORS_ONLN)
# All select the same packages, because these decide with which features a library is built.
SERVICES := --workspace --exclude redlock-model --no-fail-fast

# Tests of locks, and of the whole system, wait most of their time. With more of the others at once, answers
# come too late on a slow machine. Of the clusters that fail over, one runs at a time: it would fail over by
# itself if its members got no processor for some seconds.
test-locks: export RUST_TEST_THREADS = $(shell echo $$((2 * $(CORES) + 1)))
test-programs: export RUST_TEST_THREADS = $(shell echo $$(($(CORES) + 1)))
test-lab: export RUST_TEST_THREADS = $(CORES)
test-others: export RUST_TEST_THREADS = 1

# test-lab runs all targets that don't begin with an l, an s or a t: the other streams name those. The whole
# system is here, and the fence beside the lab, so that all end at about the same time.
test-locks:
	cargo test $(SERVICES) --test locks --test logs --test spans --test system -- $(SKIPPED)

test-programs:
	@$(call print_at_end,cargo test $(SERVICES) --test lock-commands --test server -- $(SKIPPED))

test-lab:
	@$(call print_at_end,cargo test $(SERVICES) --test '[!lst]*' -- $(SKIPPED))

test-others:
	@$(call print_at_end,cargo test $(SERVICES) --test main --test server $(FAILOVERS) -- --skip $(AT_LENGTH) && \
		cargo test $(SERVICES) --lib --bins --examples --test testbed -- --skip $(AT_LENGTH) && \
		cargo test $(SERVICES) --doc)

SKIPPED = --skip $(TERRAFORM) --skip $(FAILOVERS) --skip $(AT_LENGTH) --skip $(SCREENSHOTS)

test-model:
	@$(call print_at_end,nice -n 19 cargo test --package redlock-model -- --skip $(AT_LENGTH))

print_at_end = mkdir -p target; { $(1); } > target/$@.log 2>&1; code=$$?; cat target/$@.log; exit $$code

# Nobody compiles a driver of a system that they don't examine, nor of a lock service that they don't use.
LOCK_FEATURES := redis redis,tls redlock etcd zookeeper sqlite sqlite,tls mariadb postgres storage storage-tls conformance
SYSTEMS := etcd zookeeper redis sqlite mariadb postgres patroni object-storage
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	cargo clippy --package lock-client --no-default-features -- --deny warnings
	for feature in $(LOCK_FEATURES); do \
		cargo clippy --quiet --package lock-client --no-default-features --features $$feature -- --deny warnings || exit 1; \
	done
	for system in $(SYSTEMS); do \
		cargo check --quiet --package doctor --features $$system || exit 1; \
	done
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps

package:
	ops/build target/package

seeds: redis-server
	FENCED_RUNS=1000 cargo test --package lock-client --test locks redlock::seeded

schemathesis:
	@testbed/install schemathesis
	cargo build --workspace
	storage-server/tests/with_server.sh target/debug/storage-server \
		storage-server/tests/schemathesis.sh target/python/bin/schemathesis
	IDENTITY=0 storage-server/tests/with_server.sh target/debug/storage-server \
		storage-server/tests/schemathesis.sh target/python/bin/schemathesis

# No package manager installs either of the two everywhere. So `make test` leaves these tests out.
TERRAFORM := terraform_command
terraform:
	cargo test --package storage-server --test server $(TERRAFORM)

FAILOVERS := patroni
failovers: patroni redis-server node
	cargo test $(SERVICES) --test main --test server --test testbed $(FAILOVERS) -- --test-threads 1

# What takes minutes has these words in its name. The models compute while the others mostly wait.
AT_LENGTH := at_length
at-length: patroni seaweedfs s3s-fs azurite
	cargo test $(SERVICES) --no-run
	cargo test --package redlock-model --no-run
	$(MAKE) --jobs=3 at-length-clusters object-storage at-length-models

at-length-clusters:
	@$(call print_at_end,cargo test $(SERVICES) --test main --test server --test testbed $(AT_LENGTH) -- \
		--skip object_storage --test-threads 1)

at-length-models:
	@$(call print_at_end,nice -n 19 cargo test --package redlock-model $(AT_LENGTH))

object-storage: seaweedfs s3s-fs azurite
	@$(call print_at_end,cargo test $(SERVICES) --test main object_storage_$(AT_LENGTH))

slow-clients: slowhttptest curl
	cargo build --workspace
	storage-server/tests/with_server.sh target/debug/storage-server storage-server/tests/slow_clients.sh
	cargo run --package storage-server --example hostile_clients --release

bench: redis-server etcd zookeeper postgresql mariadb wrk strace python seaweedfs
	cargo build --package lab --release
	target/release/lab bench storage
	target/release/lab bench fence
	target/release/lab bench locks
	target/release/lab bench redlock

model:
	cargo run --package redlock-model --example explore --release

# What is installed for which target is a table in this script.
$(INSTALLED):
	@testbed/install $@

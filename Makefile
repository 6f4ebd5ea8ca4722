# SPDX-License-Identifier: GPL-2.0
# The commands that a person types. kbuild reads Kbuild instead of this file.

LAB := qemu/lab
DEVICE ?= ferrule
BACKEND ?= soft
KERNEL ?= stock

# Runs of guests on arm64, and of two guests of which one is.
ARM64 := --kernel arm64 --kernel arm64-amd64 --kernel amd64-arm64

.PHONY: all help module provider programs deb bundle run shell test test-debug test-long test-rt test-packages \
	test-kernels test-arm64 bench study fuzz fuzz-nic clippy rustfmt rustfmtcheck rustdoc rust-analyzer checkpatch modules_install clean

ifdef KDIR

# A kernel of one's own, with the compilers of this machine: plain kbuild.
ifeq ($(wildcard $(KDIR)/Makefile),)
$(error KDIR=$(KDIR) is no kernel's build directory; for the running kernel it is /lib/modules/$(shell uname -r)/build)
endif
KBUILD = $(MAKE) -C $(KDIR) M=$(CURDIR)

# Its user wants the driver alone, and kbuild installs whatever was built.
export FERRULE_TESTS ?= n

all: module

module:
	$(KBUILD) modules

modules_install:
	$(KBUILD) modules_install

clippy:
	$(KBUILD) CLIPPY=1 modules

clean:
	$(KBUILD) clean

else

all:
	$(LAB) build --kernel $(KERNEL) module provider

module:
	$(LAB) build --kernel $(KERNEL) module

modules_install:
	$(LAB) install --kernel $(KERNEL) $(INSTALL_MOD_PATH)

clippy:
	$(LAB) build --clippy module

clean:
	rm -rf build

endif

help:
	@echo 'Build'
	@echo '  all (default)    the module and the provider, into build/'
	@echo '  all KDIR=DIR     the module for the kernel whose build directory is DIR, with the compilers of this machine'
	@echo '  modules_install  the module into /lib/modules (below INSTALL_MOD_PATH), for its kernel; KDIR= as above'
	@echo '  deb              Debian packages of both, into build/deb/ (see qemu/packaging/README.md); DKMS=1: and for dkms'
	@echo '  bundle           an archive that runs guests without this checkout, into build/bundle/'
	@echo '  clean            remove what was built (the cache stays: see qemu/lab clean)'
	@echo
	@echo 'Run'
	@echo '  run              a guest that shows ibv_devinfo, ibv_rc_pingpong, ib_send_bw and ib_write_bw over ferrule0'
	@echo '  run DEVICE=rxe   the same over rxe0'
	@echo '  run BACKEND=nic  the same over ferrule0 as a PCI function beside QEMU'
	@echo '  shell            a shell in a guest; DEVICE= and BACKEND= as above'
	@echo '                   (qemu/lab --help tells how to run any program in a guest)'
	@echo
	@echo 'Test'
	@echo '  test             all suites, on Debian'"'"'s stock kernel; TESTFLAGS= for tests/run (see tests/run --help)'
	@echo '  test-debug       those of guests on a kernel with lockdep, KASAN and their like, and what only that one can test'
	@echo '  test-long        both, and arm64, with their full numbers of rounds'
	@echo '  test-rt          the suites of guests on Debian'"'"'s kernel with PREEMPT_RT'
	@echo '  test-arm64       those of guests on arm64, and of two guests between arm64 and amd64'
	@echo '  test-packages    Debian packages: installed, upgraded and removed in guests'
	@echo '  test-kernels     the module on each kernel that it is packaged for; writes tests/kernels.md'
	@echo '  bench            ferrule against rxe, and what has to be reached; BENCHFLAGS= (see tests/bench/bench --help)'
	@echo '  study            one parameter of verbs at a time, a picture each; BENCHFLAGS= as above'
	@echo '  fuzz             look for inputs that break the engine; SECONDS= for each of TARGETS= (requests queues packets);'
	@echo '                   KEEP=1 keeps new ones in the corpus'
	@echo '  fuzz-nic         likewise of ferrule-nic, the PCI function beside QEMU'
	@echo
	@echo 'Rust'
	@echo '  clippy           lint the module'
	@echo '  rustfmt          format all Rust code; rustfmtcheck only looks'
	@echo '  rustdoc          documentation of rust/ into build/rustdoc'
	@echo '  rust-analyzer    rust-project.json for editors'
	@echo
	@echo 'C'
	@echo '  checkpatch       look at the C code of the module as the kernel does'

provider:
	$(LAB) build provider

programs:
	$(LAB) build tests

deb:
	$(LAB) deb $(if $(DKMS),--dkms)

bundle:
	$(LAB) bundle

run:
	$(LAB) run --device $(DEVICE) --backend $(BACKEND) --kernel $(KERNEL) -- /ferrule/tests/guest/demo.sh

shell:
	$(LAB) shell --device $(DEVICE) --backend $(BACKEND) --kernel $(KERNEL)

test: programs
	tests/run $(TESTFLAGS)

test-debug: programs
	tests/run --kernel debug $(TESTFLAGS)

test-rt: programs
	tests/run --kernel rt $(TESTFLAGS)

test-long: programs
	tests/run --long --kernel stock --kernel debug $(ARM64) $(TESTFLAGS)

test-arm64:
	tests/run $(ARM64) $(TESTFLAGS)

test-packages: programs
	tests/run --long --kernel stock --only 'packages*' $(TESTFLAGS)

test-kernels: programs
	tests/kernels

bench: programs
	tests/bench/bench $(BENCHFLAGS)

study: programs
	tests/bench/study $(BENCHFLAGS)

fuzz:
	$(LAB) exec -- env KEEP=$(KEEP) drivers/infiniband/sw/ferrule/engine/fuzz/run $(or $(SECONDS),60) $(TARGETS)

fuzz-nic:
	$(LAB) exec -- env KEEP=$(KEEP) WORK=$(CURDIR)/build/fuzz qemu/nic/fuzz/run $(or $(SECONDS),60) session frames

rustfmt:
	$(LAB) rust fmt

rustfmtcheck:
	$(LAB) rust fmt --check

rustdoc:
	$(LAB) rust doc

rust-analyzer:
	$(LAB) rust analyzer

# All C code of the module but rust/bindings/layout.c: that has the compiler print numbers, by macros of its own kind.
checkpatch:
	$(LAB) exec --kernel stock -- perl /kernel/src/scripts/checkpatch.pl --no-tree --terse --no-summary --file \
		rust/helpers/*.[ch] drivers/infiniband/sw/ferrule/trace/*.[ch] include/uapi/rdma/*.h

# SPDX-License-Identifier: GPL-2.0
"""The files of the lab, from the ground up; a file imports only those above it.

errors    the errors that a person may meet, and their exit status
ui        the lines that say what takes long, and their log files
suite     which suite of Debian's everything comes from
arch      an architecture of guests: its names, and QEMU's machine for it
frozen    a bundle: the lab with all that a guest needs, made elsewhere
cache     entries outside the checkout, named by what went into them
debian    which mirror, and the trees that come from it
tree      the build tree, and the one way to run a program inside it
archive   single packages
kernel    which kernel, its image and modules, its source, and KDIR
debug     the debug kernel
module    ferrule.ko and the other modules of the checkout
provider  libferrule, inside an rdma-core tree
packages  Debian packages of these
dkms      those with which dkms compiles the module on its user's machine
programs  the programs of tests/ that run in guests
rust      rustfmt, rustdoc, rust-analyzer
image     what a guest boots: its root image and its initramfs
system    a whole Debian 13 on a disk, with systemd and apt
accel     KVM or TCG, and the CPU model
nic       ferrule-nic, and the QEMU that knows its functions
backend   what carries out the work of a guest's device
channel   the lab's end of the line to a guest's agent
kernlog   what a kernel reported against itself
tap       what a command tells of its tests
junit     the same as a file for CI services
guest     nodes: starting QEMU, talking to the agents, ending it all
bundle    the archive that makes a lab elsewhere
cli       the commands
"""

# SPDX-License-Identifier: GPL-2.0
"""The rooms of the lab, from the ground up; a file imports only those above it.

errors    the errors that a person may meet, and their exit status
ui        the lines that say what takes long, and their log files
cache     entries outside the checkout, keyed by what went into them
debian    the archive, and the trees and packages that come from it
tree      the build tree, and running a program inside it
kernel    which kernel, its image and modules, and KDIR
debug     the kernel that watches
module    ferrule.ko
provider  libferrule, inside an rdma-core tree
tests     the programs of tests/
image     what a guest boots: its root image and its initramfs
accel     KVM or TCG, and the CPU model
channel   the lab's end of the line to a guest's agent
kernlog   what the kernel reported
guest     nodes: starting, talking to, and ending QEMU
cli       the commands
"""

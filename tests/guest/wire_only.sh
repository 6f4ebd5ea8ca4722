#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# wire_only.sh DEVICE NETEM PROGRAM [ARGUMENT…]: runs a program while the queue pairs of a ferrule device reach each other
# by the wire, through the loopback device, which does to packets what NETEM says ("" for nothing; see tc-netem(8)). It fails
# if no packet was sent, or with a NETEM none was lost or overtaken.
#
# The packets of a PCI function are ferrule-nic's: that sends them if the lab was told --wire-only, and no NETEM gets at
# them.

device=$1
switch=/sys/kernel/debug/ferrule/$device/wire_only
netem=$2
shift 2
set -e

counter() {
    cat "/sys/class/infiniband/$device/ports/1/hw_counters/$1"
}

restore() {
    echo 0 > "$switch"
    [ -z "$netem" ] || tc qdisc delete dev lo root
}

if [ -e "$switch" ]; then
    echo 1 > "$switch"
    trap restore EXIT
    # Devices that the program makes do the same.
    export WIRE_ONLY=1
    if [ -n "$netem" ]; then
        modprobe sch_netem
        # shellcheck disable=SC2086
        tc qdisc add dev lo root netem $netem
    fi
    # Where an answer may be lost, a program can meet with silence in its place.
    case $netem in
    *loss*) export WIRE_LOSES=1 ;;
    esac
fi
sent=$(counter sent_pkts)
missing=$(counter sequence_errors)
"$@"
[ "$(counter sent_pkts)" -gt "$sent" ] || {
    echo "not ok - $device has sent no packet; with --backend nic, qemu/lab run needs --wire-only"
    exit 1
}
# Where packets are lost or overtaken, others come that are not the next.
[ -z "$netem" ] || [ ! -e "$switch" ] || [ "$(counter sequence_errors)" -gt "$missing" ] || {
    echo "not ok - no packet was lost or overtaken: netem $netem"
    exit 1
}

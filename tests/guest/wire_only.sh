#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# wire_only.sh DEVICE NETEM PROGRAM [ARGUMENT…]: runs a program while the queue pairs of a ferrule device reach each other
# by the wire, through the loopback device, which does to packets what NETEM says ("" for nothing; see tc-netem(8)).
#
# The packets of a PCI function are ferrule-nic's: that sends them if the lab was told --wire-only, and no NETEM gets at
# them. So here it is only seen to that packets are sent.

device=$1
switch=/sys/kernel/debug/ferrule/$device/wire_only
netem=$2
shift 2

sent() {
    cat "/sys/class/infiniband/$device/ports/1/hw_counters/sent_pkts"
}

if [ ! -e "$switch" ]; then
    before=$(sent)
    "$@" || exit
    [ "$(sent)" -gt "$before" ] || {
        echo "not ok - $device has sent no packet: qemu/lab run --wire-only"
        exit 1
    }
    exit 0
fi

restore() {
    echo 0 > "$switch"
    [ -z "$netem" ] || tc qdisc delete dev lo root
}

set -e
echo 1 > "$switch"
trap restore EXIT
if [ -n "$netem" ]; then
    modprobe sch_netem
    # shellcheck disable=SC2086
    tc qdisc add dev lo root netem $netem
fi
# Where an answer may be lost, a program can meet with silence in its place.
case $netem in
*loss*) export WIRE_LOSES=1 ;;
esac
WIRE_ONLY=$device "$@"

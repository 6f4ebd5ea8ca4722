#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The demonstration of `make run`: the device, and bytes that move between two processes over it.

set -e
device=$(ls /sys/class/infiniband | head -n 1)

show() {
    printf '\n\033[1m# %s\033[0m\n' "$*"
    "$@"
}

# The server begins first, and says nothing: the client's words tell it all.
pair() {
    "$@" > /dev/null &
    sleep 0.5
    show "$@" 127.0.0.1
    wait $!
}

show ibv_devinfo -d "$device"
pair ibv_rc_pingpong -d "$device" -g 1 -n 1000
pair ib_send_bw -d "$device" -x 1 -n 1000 -F
pair ib_write_bw -d "$device" -x 1 -n 1000 -F

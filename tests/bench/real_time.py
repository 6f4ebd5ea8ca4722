# SPDX-License-Identifier: GPL-2.0
"""How late a thread with real-time priority is beside the device, by instructions, for `make bench`."""

from scenario import Measure, Scenario
from ways import Lateness

MEASURES = {
    "late_doorbells": Measure("later in 99 of 100 times, beside doorbells", "us", "doorbells"),
    "late_requests": Measure("later in 99 of 100 times, beside 1,000 requests in lists", "us"),
    "late_packets": Measure("later than beside TCP, by packets of RDMA WRITEs to the same device", "us", "bytes"),
    "late_contexts": Measure("later in 99 of 100 times, beside 1,000 contexts awake", "us"),
    "late_kernel_users": Measure("later in 99 of 100 times, beside RDMA WRITEs of two kernel users", "us", "bytes"),
}

DOORBELLS = (1, 512, 8000, 60000)
PACKETS = (8, 4096, 65536)
KERNEL_USERS = (8, 4096, 65536)

SCENARIO = Scenario(
    about="how late a SCHED_FIFO thread is, in a guest of one processor whose clock counts instructions",
    lab=("--accel", "icount", "--smp", "1", "--mem", "2048"),
    drivers=Lateness.drivers,
    measures=MEASURES,
    ways=(
        *(Lateness(measure="late_doorbells", case=f"doorbells_{count}", x=count) for count in DOORBELLS),
        Lateness(measure="late_requests", case="requests_1000"),
        *(Lateness(measure="late_packets", case=f"packets_{size}", x=size) for size in PACKETS),
        Lateness(measure="late_contexts", case="contexts_1000"),
        *(Lateness(measure="late_kernel_users", case=f"kernel_users_{size}", x=size) for size in KERNEL_USERS),
    ))

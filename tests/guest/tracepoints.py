#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The fields of the tracepoints, of requests and packets that the test knows.

usage: tracepoints.py DEVICE
"""

import contextlib
import os
import re
import socket
import struct
import sys

import pyverbs.enums as e
from pyverbs.wr import SGE, SendWR

from ends import judged, two_ends
from guestlib import ROCE_PORT, Failure, Tap, check, must, read, wait_for

ADDRESS = "10.77.0.1"
TRACING = "/sys/kernel/tracing"
EVENTS = f"{TRACING}/events/ferrule"
WR_ID = 0x123456789abcdef0
MTU = 1024
NS = 1_000_000_000
# Of a packet over IPv4: IP, UDP, base transport header, invariant CRC; of the first of a WRITE and an acknowledgement besides.
HEADERS = 20 + 8 + 12 + 4
RETH, AETH = 16, 4
# Opcodes on the wire (IBA volume 1, 9.2, table 38), and that of a WRITE in a ring (rdma/ferrule-abi.h).
SEND_ONLY, WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, ACKNOWLEDGE = 0x04, 0x06, 0x07, 0x08, 0x11
WR_RDMA_WRITE = 2


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


@contextlib.contextmanager
def traced(device):
    """A list of the events meanwhile, all of this device: pairs of name and text, without its index. Numbers of queue
    pairs are in hexadecimal there."""
    found = []
    write(f"{TRACING}/trace", "")
    write(f"{EVENTS}/enable", "1")
    try:
        yield found
    finally:
        write(f"{EVENTS}/enable", "0")
    events = re.findall(r": ferrule_(\w+): dev_index=(\d+) (.*)", read(f"{TRACING}/trace"))
    check({int(index) for _, index, _ in events} <= {index_of(device)}, f"{events} are of other devices")
    found += [(event, text) for event, _, text in events]


def index_of(device):
    """The index of an RDMA device."""
    return int(re.match(r"(\d+): ", must("rdma", "dev", "show", device))[1])


def numbers(text):
    """The fields of an event that are numbers."""
    return {name: int(value, 0) for name, value in re.findall(r"(\w+)=(0x[0-9a-f]+|\d+)(?:ns)?(?!\S)", text)}


def of(events, name):
    return [numbers(text) for event, text in events if event == name]


def expect(events, name, *wanted):
    check(of(events, name) == list(wanted), f"ferrule_{name}: {of(events, name)}, and not {wanted}")


@contextlib.contextmanager
def connected(device):
    """Two ends by the wire, with PSNs that begin with 0."""
    switch = f"/sys/kernel/debug/ferrule/{device}/wire_only"
    write(switch, "1")
    try:
        with two_ends("RC", (device, ADDRESS), (device, ADDRESS)) as (one, other):
            one.connect(other)
            other.connect(one)
            yield one, other
    finally:
        write(switch, "0")


def a_write(device):
    """Three packets, and an acknowledgement of the last."""
    length = 2 * MTU + 952
    with connected(device) as (one, other):
        here, there = one.qp.qp_num, other.qp.qp_num
        request = SendWR(wr_id=WR_ID, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(one.mr.buf, length, one.mr.lkey)])
        request.set_wr_rdma(other.mr.rkey, other.mr.buf)
        write(f"{EVENTS}/ferrule_round_trip/trigger", "hist:keys=cwnd")
        try:
            with traced(device) as events:
                one.qp.post_send(request)
                check(one.completion()[0] == e.IBV_WC_SUCCESS, "the request failed")
            records = read(f"{EVENTS}/ferrule_round_trip/hist")
        finally:
            write(f"{EVENTS}/ferrule_round_trip/trigger", "!hist:keys=cwnd")
    expect(events, "doorbell", {"qpn": here, "producer": 1})
    expect(events, "request", {"qpn": here, "wr_id": WR_ID, "opcode": WR_RDMA_WRITE, "length": length})
    completion, = of(events, "completion")
    # A number of the engine's, which nobody else tells.
    completion.pop("cqn")
    check(completion == {"qpn": here, "wr_id": WR_ID, "status": e.IBV_WC_SUCCESS, "opcode": e.IBV_WC_RDMA_WRITE,
                         "length": length}, f"{completion}")
    packets = ((WRITE_FIRST, MTU, RETH), (WRITE_MIDDLE, MTU, 0), (WRITE_LAST, 952, 0))
    expect(events, "packet_sent",
           *({"qpn": here, "dest_qpn": there, "opcode": opcode, "psn": psn, "length": data}
             for psn, (opcode, data, _) in enumerate(packets)),
           {"qpn": there, "dest_qpn": here, "opcode": ACKNOWLEDGE, "psn": 2, "length": 0})
    expect(events, "packet_received",
           *({"dest_qpn": there, "opcode": opcode, "psn": psn, "length": HEADERS + data + more}
             for psn, (opcode, data, more) in enumerate(packets)),
           {"dest_qpn": here, "opcode": ACKNOWLEDGE, "psn": 2, "length": HEADERS + AETH})
    taken = [text for event, text in events if event == "round_trip"]
    check(taken, "no round trip was taken into account")
    for text in taken:
        fields = numbers(text)
        check(fields["qpn"] == here and 0 < fields["min_rtt"] <= fields["rtt"] and fields["target"] < NS and
              fields["in_flight"] <= len(packets) and fields["mode"] in (0, 1, 2), text)
    # 256ths of a packet, of which the text has hundredths.
    recorded = {int(cwnd) for cwnd in re.findall(r"cwnd: *(\d+)", records)}
    told = {re.search(r"cwnd=(\S+)", text)[1] for text in taken}
    check(min(recorded) >= 256 and {f"{cwnd // 256}.{cwnd % 256 * 100 // 256:02}" for cwnd in recorded} == told,
          f"recorded {recorded}, told {told}")


def states(device):
    with traced(device) as events, connected(device) as (one, _):
        here = one.qp.qp_num
    changes = [text for event, text in events if event == "qp_state" and text.startswith(f"qpn=0x{here:06x} ")]
    check([text.split(" ", 1)[1] for text in changes][:3] == ["0 -> 1", "1 -> 2", "2 -> 3"], f"{changes}")


def send_again(device):
    """A SEND for which there is no receive request yet."""
    with connected(device) as (one, other):
        here = one.qp.qp_num
        with traced(device) as events:
            one.send(100)
            wait_for(lambda: "ferrule_retry" in read(f"{TRACING}/trace"), "the packet is sent again")
            other.receive()
            check(one.completion()[0] == e.IBV_WC_SUCCESS, "the request failed")
    again = {text for event, text in events if event == "retry"}
    check(again == {f"qpn=0x{here:06x} psn=0 reason=rnr_nak"}, f"{again}")


def drops(device):
    """Packets that are none of RoCEv2 until their invariant CRC, which is wrong in the last."""
    with connected(device) as (one, _):
        there = one.qp.qp_num

        def packet(opcode, version=0):
            # Base transport header (9.2), and the invariant CRC.
            return struct.pack(">BBHIII", opcode, version, 0xffff, there, 0x123456, 0)

        about = f"dest_qpn=0x{there:06x} opcode=0x{{:02x}} psn={0x123456} reason={{}}"
        kinds = ((packet(SEND_ONLY, 1), about.format(SEND_ONLY, "version")),
                 (packet(0xff), about.format(0xff, "opcode")),
                 (packet(WRITE_FIRST), about.format(WRITE_FIRST, "short")),
                 (packet(SEND_ONLY), about.format(SEND_ONLY, "icrc")))
        with traced(device) as events, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
            for data, _ in kinds:
                program.sendto(data, (ADDRESS, ROCE_PORT))
            with contextlib.suppress(Failure):
                wait_for(lambda: read(f"{TRACING}/trace").count("ferrule_packet_dropped") >= len(kinds), "each is dropped")
    found = [text for event, text in events if event == "packet_dropped"]
    check(found == [text for _, text in kinds], f"{found}")


def another_device(device):
    """The index of a second device is told of all its shards: two programs have one each until they are connected."""
    address = "10.77.1.1"
    must("ip", "link", "add", "dummy-second", "type", "dummy")
    must("ip", "link", "set", "dummy-second", "up")
    must("ip", "address", "add", f"{address}/24", "dev", "dummy-second")
    must("rdma", "link", "add", "second", "type", "ferrule", "netdev", "dummy-second")
    try:
        check(index_of("second") != index_of(device), "they have one index")
        with traced("second") as events, two_ends("RC", ("second", address), ("second", address)) as ends:
            for here, there in (ends, ends[::-1]):
                here.connect(there)
            numbers_of_both = [end.qp.qp_num for end in ends]
        begun = {f"qpn=0x{number:06x} 0 -> 1" for number in numbers_of_both}
        check(begun <= {text for event, text in events if event == "qp_state"}, f"{events}")
    finally:
        must("rdma", "link", "delete", "second")
        must("ip", "link", "delete", "dummy-second")


def main(device):
    tap = Tap()
    if not os.path.isdir(EVENTS):
        must("mount", "-t", "tracefs", "tracefs", TRACING)
    for case in (a_write, states, send_again, drops, another_device):
        tap.case(case.__name__, judged, case, device)
    tap.end()


if __name__ == "__main__":
    main(sys.argv[1])

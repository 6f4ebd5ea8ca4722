# SPDX-License-Identifier: GPL-2.0
"""Queue pairs whose address vectors a test writes itself, by pyverbs, and the packets that they send, as seen on the way.

In the mode in which all namespaces see all devices, one process has both ends of a connection between two of them.
"""

import contextlib
import ipaddress
import socket
import struct
import time
from dataclasses import dataclass

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

import node
from guestlib import ROCE_PORT, SLOW, Failure, check, inside, wait_for

SERVICES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
QKEY = 0x11111111
# Bytes in front of a datagram's data at the receiver.
GRH = 40
LENGTH = 64 * 1024
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


def judged(function, *arguments):
    """A case in which an error of pyverbs is a failure."""
    try:
        function(*arguments)
    except PyverbsError as error:
        raise Failure(str(error)) from error


# ---- Queue pairs ----

def gid_index(device, address):
    """The index of the GID that is this address, once there is one."""
    address = ipaddress.ip_address(address)
    wanted = ipaddress.IPv6Address(f"::ffff:{address}") if address.version == 4 else address
    wait_for(lambda: find_gid(device, wanted) is not None, f"{device} has a GID of {address}")
    return find_gid(device, wanted)


def find_gid(device, wanted):
    return next((index for index, gid in node.roce_gids(device) if ipaddress.IPv6Address(gid) == wanted), None)


class End:
    """A queue pair with memory of its own. `address` is the own one."""

    def __init__(self, device, service, address):
        self.service = service
        self.gid_index = gid_index(device, address)
        self.context = Context(name=device)
        self.gid = self.context.query_gid(1, self.gid_index)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, LENGTH, ACCESS)
        init = QPInitAttr(qp_type=SERVICES[service], scq=self.cq, rcq=self.cq, sq_sig_all=1,
                          cap=QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1))
        # No attributes with it: it stays in RESET.
        self.qp = QP(self.pd, init)
        self.peer = self.ah = None

    def close(self):
        for thing in (self.ah, self.qp, self.mr, self.cq, self.pd, self.context):
            if thing is not None:
                thing.close()

    def connect(self, peer, mtu=e.IBV_MTU_1024, timeout=18, retry=7, **vector):
        """`vector` has what is to be in the address vector: sl, traffic_class, hop_limit, flow_label."""
        sl = vector.pop("sl", 0)
        route = GlobalRoute(dgid=peer.gid, sgid_index=self.gid_index, **{"hop_limit": 0, **vector})
        way = AHAttr(sl=sl, is_global=1, port_num=1, gr=route)
        self.peer = peer
        attr = QPAttr(port_num=1, path_mtu=mtu)
        if self.service == "UD":
            attr.qkey = QKEY
            attr.sq_psn = 0
            self.qp.to_rts(attr)
            self.ah = AH(self.pd, attr=way)
            return
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = peer.qp.qp_num
        attr.ah_attr = way
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 4
        attr.min_rnr_timer = 12
        attr.timeout, attr.retry_cnt, attr.rnr_retry = timeout, retry, 7
        self.qp.to_rts(attr)

    def receive(self, length=LENGTH):
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf, length, self.mr.lkey)]))

    def send(self, length):
        request = SendWR(num_sge=1, sg=[SGE(self.mr.buf, length, self.mr.lkey)])
        if self.service == "UD":
            request.set_wr_ud(self.ah, self.peer.qp.qp_num, QKEY)
        self.qp.post_send(request)

    def completion(self, seconds=20):
        """The status of the next completion, and its length."""
        late = time.monotonic() + seconds * SLOW
        while True:
            count, completions = self.cq.poll(1)
            if count:
                return completions[0].status, completions[0].byte_len
            check(time.monotonic() < late, f"no completion within {seconds * SLOW} s")
            time.sleep(0.001)


@contextlib.contextmanager
def two_ends(service, one, other):
    """Two ends that are not connected yet; each side is its device and its address."""
    ends = []
    try:
        for device, address in (one, other):
            ends.append(End(device, service, address))
        yield ends
    finally:
        for end in ends:
            end.close()


def transfer(one, other, length=100):
    """A message, byte for byte."""
    text = bytes((number * 7 + length) & 0xff for number in range(length))
    before = GRH if one.service == "UD" else 0
    one.mr.write(text, length)
    other.mr.write(b"\0" * (length + before), length + before)
    other.receive()
    one.send(length)
    check(one.completion()[0] == e.IBV_WC_SUCCESS, "the request failed")
    check(other.completion() == (e.IBV_WC_SUCCESS, length + before), "the message has not arrived")
    check(other.mr.read(length, before) == text, "other bytes have arrived than were sent")


# ---- Packets ----

@dataclass(frozen=True)
class Packet:
    """The headers of a RoCEv2 packet. `vlan` is the identifier and the priority, None without a tag."""

    vlan: tuple
    version: int
    traffic_class: int
    hop_limit: int
    flow_label: int
    source: str
    destination: str
    source_port: int
    checksum: int
    opcode: int
    length: int

    @classmethod
    def parse(cls, frame, tci):
        kind, at = int.from_bytes(frame[12:14], "big"), 14
        if kind == 0x8100:
            tci, kind, at = int.from_bytes(frame[14:16], "big"), int.from_bytes(frame[16:18], "big"), 18
        ip = frame[at:]
        if kind == 0x0800 and ip[9] == socket.IPPROTO_UDP:
            # Atomic datagrams: not to be fragmented, and so without an identification (RFC 6864).
            check(ip[0] == 0x45 and ip[4:8] == bytes((0, 0, 0x40, 0)), f"an IPv4 header {ip[:20].hex()}")
            traffic_class, hops, flow, ends, udp = ip[1], ip[8], 0, (ip[12:16], ip[16:20]), ip[20:]
        elif kind == 0x86dd and ip[6] == socket.IPPROTO_UDP:
            first = int.from_bytes(ip[:4], "big")
            traffic_class, hops, flow, ends, udp = first >> 20 & 0xff, ip[7], first & 0xfffff, (ip[8:24], ip[24:40]), ip[40:]
        else:
            return None
        source_port, port, _, checksum = struct.unpack_from(">HHHH", udp)
        if port != ROCE_PORT:
            return None
        return cls(None if tci is None else (tci & 0xfff, tci >> 13), ip[0] >> 4, traffic_class, hops, flow,
                   *(str(ipaddress.ip_address(end)) for end in ends), source_port, checksum, udp[8], len(udp) - 8)


SOL_PACKET = 263
PACKET_AUXDATA = 8
TP_STATUS_VLAN_VALID = 1 << 4


class Capture:
    """The RoCEv2 packets that pass a network device of a namespace, in either direction, from now on."""

    def __init__(self, namespace, netdev):
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.bind((netdev, 3))
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def packets(self, source=None):
        """Those since the last call, of one sender or of all."""
        found = []
        while True:
            try:
                frame, more, _, _ = self.socket.recvmsg(65536, 128)
            except BlockingIOError:
                break
            tci = None
            for level, kind, data in more:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                    status, *_, tag, _ = struct.unpack("=IIIHHHH", data)
                    tci = tag if status & TP_STATUS_VLAN_VALID else None
            packet = Packet.parse(frame, tci)
            if packet and source in (None, packet.source):
                found.append(packet)
        return found

# SPDX-License-Identifier: GPL-2.0
"""The two sides of net_echo: namespaces joined by a veth pair, and a socket that asks the module.

The head comment of tests/net_echo/echo.rs has the questions.
"""

import contextlib
import errno
import os
import socket
import struct
import threading
import time

from guestlib import SLOW, check, inside, must, wait_for

PORT = 4799
V4 = {"as": "10.81.0.1", "ec": "10.81.0.2"}
V6 = {"as": "fd81::1", "ec": "fd81::2"}
IPV6_FLOWINFO_SEND, IPV6_FLOWLABEL_MGR, IPV6_FLOWINFO = 33, 32, 11
UDP_NO_CHECK6_RX = 102
FACTS = struct.Struct(">11I6s2x8I")
NAMES = ("interface vlan traffic_class hop_limit flow_label checksum length linear crc mtu resolved mac "
         "up unregistered added removed unanswered last_error routes takes_lists").split()


def ip(name, *words):
    return must("ip", "-n", name, *words)


def join(mtu=9000):
    """Both namespaces, and the veth pair with its addresses."""
    for name in ("as", "ec"):
        must("ip", "netns", "add", name)
        ip(name, "link", "set", "lo", "up")
    connect(mtu)


def connect(mtu=9000):
    must("ip", "link", "add", "va", "netns", "as", "type", "veth", "peer", "name", "ve", "netns", "ec")
    for name, device in (("as", "va"), ("ec", "ve")):
        ip(name, "link", "set", device, "mtu", mtu, "up")
        ip(name, "address", "add", f"{V4[name]}/24", "dev", device)
        ip(name, "address", "add", f"{V6[name]}/64", "dev", device, "nodad")


def part():
    for name in ("as", "ec"):
        if os.path.exists(f"/run/netns/{name}"):
            must("ip", "netns", "delete", name)


class Asker:
    """A socket in the namespace `as` that asks the module."""

    def __init__(self, family, namespace="as", where=None):
        self.v6 = family == socket.AF_INET6
        with inside(namespace):
            self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.settimeout(2 * SLOW)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        if self.v6:
            self.socket.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            self.socket.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWINFO, 1)
        else:
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            self.socket.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
        self.to = (where or (V6 if self.v6 else V4)["ec"], PORT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def header(self, level, option):
        """A number of the header of the last answer."""
        for found in self.ancillary:
            if found[:2] == (level, option):
                return found[2]
        return None

    def hear(self):
        answer, self.ancillary, flags, self.sender = self.socket.recvmsg(65536, 512)
        check(not flags & socket.MSG_TRUNC, "an answer was cut")
        check(self.sender[:2] == self.to, f"an answer from {self.sender}")
        return answer

    def ask(self, question):
        self.socket.sendto(question, self.to)
        return self.hear()

    def facts(self, question=b"i"):
        answer = self.ask(question)
        check(len(answer) == FACTS.size, f"{len(answer)} bytes of facts")
        return dict(zip(NAMES, FACTS.unpack(answer)))

    def silence(self, question, seconds=0.3):
        """Asks what must not be answered."""
        self.socket.settimeout(seconds * SLOW)
        try:
            self.socket.sendto(question, self.to)
            answer = self.hear()
            check(False, f"{question[:8]} was answered by {len(answer)} bytes")
        except TimeoutError:
            pass
        except OSError as error:
            # The way there is gone, too.
            check(error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ECONNREFUSED), str(error))
        finally:
            self.socket.settimeout(2 * SLOW)

    def lives(self, seconds=5):
        """Waits until there are answers."""
        def answered():
            self.socket.settimeout(0.3 * SLOW)
            try:
                return self.ask(b"e?") == b"e?"
            except OSError:
                return False
            finally:
                self.socket.settimeout(2 * SLOW)
        wait_for(answered, "there are answers", seconds)
        # Late answers to what was asked on the way.
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.recv(65536)
        self.socket.settimeout(2 * SLOW)


FAMILIES = (socket.AF_INET, socket.AF_INET6)


@contextlib.contextmanager
def traffic(question=b"b\x04" + bytes(3000)):
    """This question by both families without a pause, whether it is answered or not."""
    stop = threading.Event()

    def flood(family):
        with Asker(family) as asker:
            asker.socket.setblocking(False)
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    asker.socket.sendto(question, asker.to)
                with contextlib.suppress(OSError):
                    while True:
                        asker.socket.recv(65536)
                time.sleep(0)

    threads = [threading.Thread(target=flood, args=(family,)) for family in FAMILIES]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A TAP device as a port of ferrule-nic's switch (TAP).

usage: tap.py PROGRAM

`qemu/lab exec` runs this, with the rights that it takes. It makes a network namespace of its own, so it touches no
interface of the machine. There the kernel has one end of the device, and this test is at a guest's network device.
"""

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests/guest"))

from guestlib import Failure, Skip, Tap, check  # noqa: E402

DEVICE = "/dev/net/tun"
SECONDS = 20

# Linux's numbers: if_tun.h, sockios.h, if.h, rtnetlink.h.
TUNSETIFF, TUNSETPERSIST, TUNSETOWNER = 0x400454ca, 0x400454cb, 0x400454cc
IFF_TUN, IFF_TAP, IFF_NO_PI, IFF_UP = 1, 2, 0x1000, 1
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU = 0x8913, 0x8914, 0x8916, 0x891c, 0x8922
RTM_DELLINK, NLM_F_REQUEST, NLM_F_ACK = 17, 1, 4

KERNEL, PEER = "10.9.0.1", "10.9.0.2"
MAC = bytes.fromhex("020000000001")
ARP, IPV4 = 0x0806, 0x0800
ICMP, UDP = 1, 17

# Without the right to make devices.
UNPRIVILEGED = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")


def request(name, number, content=b""):
    """An ioctl with a `struct ifreq`; returns what it has behind the name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return fcntl.ioctl(any_socket, number, struct.pack("16s24s", name.encode(), content))[16:]


def address(text):
    return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(text))


def interfaces():
    return [name for _, name in socket.if_nameindex()]


def set_up(name, up):
    flags = struct.unpack("H", request(name, SIOCGIFFLAGS)[:2])[0]
    request(name, SIOCSIFFLAGS, struct.pack("H", flags | IFF_UP if up else flags & ~IFF_UP))


def configure(name, mtu):
    request(name, SIOCSIFMTU, struct.pack("i", mtu))
    request(name, SIOCSIFADDR, address(KERNEL))
    request(name, SIOCSIFNETMASK, address("255.255.255.0"))
    set_up(name, True)


def persistent(name, kind, owner):
    """A device of a user that stays when nobody has it open."""
    with open(DEVICE, "r+b", buffering=0) as file:
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), kind | IFF_NO_PI))
        try:
            fcntl.ioctl(file, TUNSETOWNER, owner)
        except OSError as error:
            raise Skip(f"this user namespace has no user {owner}: {error.strerror}") from None
        fcntl.ioctl(file, TUNSETPERSIST, 1)


def delete(name):
    index = socket.if_nametoindex(name)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        body = struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, 0, 0)
        netlink.send(struct.pack("IHHII", 16 + len(body), RTM_DELLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body)
        error = struct.unpack("i", netlink.recv(4096)[16:20])[0]
    check(error == 0, f"the device cannot be deleted: {os.strerror(-error)}")


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


class Peer:
    """A guest's network device, which answers ARP, echoes, and datagrams with the same bytes."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(SECONDS)
        self.stream.connect(str(path))

    def receive(self):
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def send(self, frame):
        self.stream.sendall(len(frame).to_bytes(4, "big") + frame)

    def ready(self, other, seconds):
        """Returns whether the other one is ready; answers all frames meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.stream, other], [], [], left)
            if self.stream in ready:
                self._answer(self.receive())
            if other in ready:
                return True
        return False

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            data += self.stream.recv(count - len(data)) or self._gone()
        return data

    @staticmethod
    def _gone():
        raise Failure("ferrule-nic has closed the stream")

    def _answer(self, frame):
        source, kind, body = frame[6:12], int.from_bytes(frame[12:14], "big"), frame[14:]
        answer = None
        if kind == ARP and body[24:28] == socket.inet_aton(PEER):
            answer = body[:6] + b"\0\2" + MAC + body[24:28] + body[8:18]
        elif kind == IPV4 and body[16:20] == socket.inet_aton(PEER):
            answer = self._answer_ip(body)
        if answer:
            self.send(source + MAC + frame[12:14] + answer)

    @staticmethod
    def _answer_ip(body):
        # The addresses change places, which leaves checksums as they are; so do the ports.
        header = body[:12] + body[16:20] + body[12:16]
        check(body[0] == 0x45 and checksum(header) == 0, "a bad header of IP")
        rest = body[20:int.from_bytes(body[2:4], "big")]
        if body[9] == UDP:
            pseudo = body[12:20] + struct.pack("!HH", UDP, len(rest))
            check(checksum(pseudo + rest) == 0, "a bad checksum of UDP: the kernel has left it to somebody else")
            return header + rest[2:4] + rest[:2] + rest[4:]
        if body[9] == ICMP and rest[0] == 8:
            rest = b"\0\0\0\0" + rest[4:]
            return header + rest[:2] + checksum(rest).to_bytes(2, "big") + rest[4:]
        return None


class Process:
    """ferrule-nic with a guest's network device and a TAP."""

    def __init__(self, program, directory, *taps, prefix=()):
        self.directory = Path(directory)
        self.log = self.directory / "log"
        sockets = f"--guest={directory}/a.sock,mac={MAC.hex(':')},net={directory}/a.net"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*prefix, program, sockets, *(f"--tap={tap}" for tap in taps)],
                                            stdout=log, stderr=log)

    def text(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, what):
        end = time.monotonic() + SECONDS
        while what not in self.text():
            check(self.process.poll() is None and time.monotonic() < end, f"it does not tell {what!r}:\n{self.text()}")
            time.sleep(0.02)

    def refused(self):
        """The line by which it tells why it has ended."""
        check(self.process.wait(SECONDS) == 1, f"status {self.process.returncode}:\n{self.text()}")
        lines = [line for line in self.text().splitlines() if " INFO " not in line]
        check(len(lines) == 1, f"not one line:\n{self.text()}")
        left = [path.name for path in self.directory.iterdir() if path != self.log]
        check(not left, f"it has left {left}")
        return lines[0]

    def ticks(self):
        """Its processor time, in hundredths of a second."""
        return sum(map(int, Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

    def end(self):
        self.process.terminate()
        check(self.process.wait(SECONDS) == 0, f"status {self.process.returncode}:\n{self.text()}")


def with_process(program, case, *taps, prefix=()):
    with tempfile.TemporaryDirectory() as directory:
        process = Process(program, directory, *taps, prefix=prefix)
        try:
            process.wait_for("waits for a client")
            case(process, Peer(f"{directory}/a.net"))
            process.end()
        finally:
            process.process.kill()
            process.process.wait()


def echo(peer, length, seconds=SECONDS):
    """Sends a datagram through the kernel's end; returns whether the peer's answer comes back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect((PEER, 7))
        data = os.urandom(length)
        udp.send(data)
        if not peer.ready(udp, seconds):
            return False
        check(udp.recv(65536) == data, "the datagram has changed")
        return True


def datagrams_by(name):
    def case(_process, peer):
        configure(name, 1500)
        for length in (1, 1000, 1472):
            check(echo(peer, length), f"no answer to {length} bytes")
    return case


def datagrams(process, peer):
    datagrams_by("tap0")(process, peer)


def long_frames(process, peer):
    configure("tap0", 9000)
    check(echo(peer, 8972), "no answer to a frame of 9014 bytes")
    # Frames from there have its MTU at most; frames to there may be longer.
    request("tap0", SIOCSIFMTU, struct.pack("i", 1500))
    check(echo(peer, 1400), "no answer with another MTU")


def pings(process, peer):
    configure("tap0", 1500)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp:
        for number in range(3):
            body = struct.pack("!HH", 7, number) + os.urandom(56)
            total = checksum(b"\x08\0\0\0" + body)
            icmp.sendto(struct.pack("!BBH", 8, 0, total) + body, (PEER, 0))
            check(peer.ready(icmp, SECONDS), "no echo")
            check(icmp.recv(65536)[24:] == body, "the echo has changed")


def link_down(process, peer):
    configure("tap0", 1500)
    check(echo(peer, 100), "no answer")
    set_up("tap0", False)
    for _ in range(100):
        peer.send(b"\xff" * 6 + MAC + b"\x88\xb5" + bytes(100))
    time.sleep(0.2)
    check(process.process.poll() is None, process.text())
    set_up("tap0", True)
    check(echo(peer, 100), "no answer after the interface was down")


def deleted(process, peer):
    configure("tap0", 1500)
    check(echo(peer, 100), "no answer")
    delete("tap0")
    process.wait_for("tap0: the device is gone")
    peer.send(b"\xff" * 6 + MAC + b"\x88\xb5" + bytes(100))
    before = process.ticks()
    time.sleep(0.5)
    check(process.ticks() - before < 10, "it is busy with a device that is gone")


def one_that_was_made_goes(process, _peer):
    check("tap0" in interfaces(), "there is no device")
    process.end()
    check("tap0" not in interfaces(), "the device is left")
    process.end = lambda: None


def one_that_stays(program):
    """The user's own takes no right, and is left as it was."""
    persistent("tap1", IFF_TAP, os.geteuid())
    try:
        with_process(program, datagrams_by("tap1"), "tap1", prefix=UNPRIVILEGED)
        check(socket.if_nametoindex("tap1"), "the device is gone")
    finally:
        delete("tap1")


def refusal(program, words, *taps, prefix=()):
    with tempfile.TemporaryDirectory() as directory:
        line = Process(program, directory, *taps, prefix=prefix).refused()
    check(words in line, line)


def busy(program):
    def case(_process, _peer):
        refusal(program, "tap0: the device is in use", "tap0")
    with_process(program, case, "tap0")


def no_tap(program):
    refusal(program, "lo: the device is no TAP with one queue", "lo")
    persistent("tun0", IFF_TUN, os.geteuid())
    try:
        refusal(program, "tun0: the device is no TAP with one queue", "tun0")
    finally:
        delete("tun0")


def no_permission(program):
    told = "tap7: there is no such device, and no permission to make it"
    refusal(program, told, "tap7", prefix=UNPRIVILEGED)


def another_user(program):
    try:
        persistent("tap2", IFF_TAP, os.geteuid() + 1)
        refusal(program, "tap2: the device is another user's", "tap2", prefix=UNPRIVILEGED)
    finally:
        if "tap2" in interfaces():
            delete("tap2")


def no_tun(program):
    # The root of `qemu/lab exec` is no mount point, so unshare cannot change its propagation; its mounts are its own already.
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    own = () if any(line.split()[4] == "/" for line in mounts) else ("--propagation", "unchanged")
    # The tree has no program mount.
    script = ("import ctypes, os, sys\n"
              "done = ctypes.CDLL(None).mount(b'tmpfs', b'/dev/net', b'tmpfs', 0, None)\n"
              "os.execv(sys.argv[1], sys.argv[1:]) if done == 0 else sys.exit('no mount')")
    hidden = ("unshare", "--mount", *own, sys.executable, "-c", script)
    refusal(program, f"tap0: there is no {DEVICE}", "tap0", prefix=hidden)


def bad_names(program):
    for name in ("", "a/b", "abcdefghijklmnop", "tap%d"):
        run = subprocess.run([program, "--guest=/nowhere/a", f"--tap={name}"], stderr=subprocess.PIPE, text=True)
        check(run.returncode == 2 and "no name of a network interface" in run.stderr, f"{name}: {run.stderr}")


TRAFFIC = (datagrams, long_frames, pings, link_down, deleted, one_that_was_made_goes)
OTHERS = (one_that_stays, busy, no_tap, no_permission, another_user, no_tun, bad_names)


def inside(program):
    tap = Tap()
    set_up("lo", True)
    for case in TRAFFIC:
        tap.case(case.__name__, with_process, program, case, "tap0")
    for case in OTHERS:
        tap.case(case.__name__, case, program)
    tap.end()


def skip_all(why):
    def skip():
        raise Skip(why)
    tap = Tap()
    for case in (*TRAFFIC, *OTHERS):
        tap.case(case.__name__, skip)
    tap.end()


def obstacle(words):
    """Why this cannot run here, if it cannot."""
    if not os.path.exists(DEVICE):
        return f"there is no {DEVICE}"
    probe = subprocess.run([*words, sys.executable, "-c", f"open('{DEVICE}', 'r+b', buffering=0)"],
                           stderr=subprocess.PIPE, text=True)
    return (probe.stderr.strip().splitlines() or ["no namespaces"])[-1] if probe.returncode else None


def main():
    if sys.argv[1] == "--inside":
        inside(sys.argv[2])
    words = ["unshare", "--net"]
    if why := obstacle(words):
        skip_all(why)
    sys.exit(subprocess.run([*words, sys.executable, __file__, "--inside", sys.argv[1]]).returncode)


if __name__ == "__main__":
    main()

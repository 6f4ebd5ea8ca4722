# SPDX-License-Identifier: GPL-2.0
"""The lab's end of the line to a guest's agent; the frames are described in qemu/guest/agent."""

import json
import socket
import struct

CHUNK = 65536


class Channel:
    """A line to one guest over a socket, of which QEMU has the other end."""

    def __init__(self):
        self.socket, self.guest_end = socket.socketpair()
        self._received = bytearray()

    def fileno(self) -> int:
        return self.socket.fileno()

    def started(self) -> None:
        """QEMU has its own copy of the guest's end now; only so does its death end the line."""
        self.guest_end.close()

    def send(self, letter: str, content: bytes = b"") -> None:
        """Send a frame; a guest that is gone is noticed when reading."""
        try:
            self.socket.sendall(letter.encode() + struct.pack("<I", len(content)) + content)
        except OSError:
            pass

    def send_json(self, letter: str, content: object) -> None:
        self.send(letter, json.dumps(content).encode())

    def receive(self) -> list[tuple[str, bytes]] | None:
        """The frames that have come; None when the line has ended. Waits where nothing has come."""
        try:
            data = self.socket.recv(CHUNK)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        self._received += data
        frames = []
        while len(self._received) >= 5:
            length, = struct.unpack_from("<I", self._received, 1)
            if len(self._received) < 5 + length:
                break
            frames.append((chr(self._received[0]), bytes(self._received[5:5 + length])))
            del self._received[:5 + length]
        return frames

# SPDX-License-Identifier: GPL-2.0
"""A ferrule-nic of another kind, for a guest's driver: a proxy between QEMU and the process that changes what registers read."""

import os
import socket
import struct
import threading
from contextlib import suppress

# vfio-user: the header of a message, and of a reply to a read of a region (QEMU's docs/interop/vfio-user.rst).
HEADER = struct.Struct("=HHIII")
READ = struct.Struct("=QII")
REGION_READ = 9
BAR0 = 0
MAX_FILES = 8


def messages(stream):
    """The messages that come until the end: the head, the body and the files of each."""
    while True:
        head, files, _, _ = socket.recv_fds(stream, HEADER.size, MAX_FILES, socket.MSG_WAITALL)
        if len(head) < HEADER.size:
            return
        size = HEADER.unpack(head)[2] - HEADER.size
        yield head, stream.recv(size, socket.MSG_WAITALL) if size else b"", files


class Other:
    """The proxy. It serves one QEMU at a time, at a path of its own."""

    def __init__(self, path, process):
        # By offset. They may be changed at any time.
        self.registers = {}
        self._process = str(process)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._process)
            threading.Thread(target=self._replies, args=(server, client), daemon=True).start()
            with client, server, suppress(OSError):
                self._requests(client, server)
                server.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _requests(client, server):
        """Pass on requests as they are."""
        for head, body, files in messages(client):
            socket.send_fds(server, [head + body], files)
            for file in files:
                os.close(file)

    def _replies(self, server, client):
        with suppress(OSError):
            for head, body, _ in messages(server):
                _, command, _, _, error = HEADER.unpack(head)
                if command == REGION_READ and not error:
                    body = self._changed(body)
                client.sendall(head + body)

    def _changed(self, body):
        offset, region, _ = READ.unpack_from(body)
        data = bytearray(body[READ.size:])
        for at in range(0, len(data), 4) if region == BAR0 else ():
            if offset + at in self.registers:
                struct.pack_into("<I", data, at, self.registers[offset + at])
        return body[:READ.size] + data

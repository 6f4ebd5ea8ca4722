# SPDX-License-Identifier: GPL-2.0
"""A kernel user's figures: NVMe over RDMA, Linux's target and host in one guest."""

import time
from dataclasses import dataclass
from typing import Iterator

from ways import MORE, Figure, Way, must
from wire_ways import nodes

import nvme  # its directory is known since ways was imported


@dataclass(frozen=True, kw_only=True)
class NvmeReads(Way):
    """Reads of a disk of 64 MiB that is in the target's memory, one at a time and past the page cache: thousands a
    second, or MiB/s."""

    size: int               # bytes
    count: int              # reads, for rdma_rxe
    in_bytes: bool = False

    def run(self, driver: str) -> Iterator[Figure]:
        here, _ = nodes(driver)
        must("modprobe", "nvme-rdma")
        count = self.count * (MORE["ferrule"] if driver == "ferrule" else 1)
        passes, rest = divmod(count * self.size, nvme.SIZE)
        with nvme.target(here), nvme.connected(here, nr_io_queues=2) as disk:
            begin = time.monotonic()
            for blocks in [nvme.SIZE // self.size] * passes + [rest // self.size]:
                must("dd", f"if={disk}", "of=/dev/null", f"bs={self.size}", f"count={blocks}", "iflag=direct", seconds=60)
            seconds = time.monotonic() - begin
        yield self.figure(count * self.size / (1 << 20) / seconds if self.in_bytes else count / 1000 / seconds)

# SPDX-License-Identifier: GPL-2.0
"""Tests of the scanner of kernel logs (qemu/labkit/kernlog.py)."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import kernlog

# A log's ordinary lines, among them words that look like a report's.
HARMLESS = """\
[    0.000000] Linux version 7.2.12+deb13-amd64 (gcc-14) #1 SMP PREEMPT_DYNAMIC
[    0.061823] On node 0, zone DMA: 1 pages in unavailable ranges
[    0.507123] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible via Spectre v2
[    0.680300] Performance Events: PMU not available due to virtualization, using software events only.
[    1.300000] rcu: \tRCU event tracing is enabled.
[    1.400000] kmemleak: Kernel memory leak detector initialized (mem pool available: 39823)
[    1.400001] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    2.000000] kasan: KernelAddressSanitizer initialized (generic)
[    3.000000] ferrule: loading out-of-tree module taints kernel.
[    3.100000] FAULT_INJECTION: forcing a failure.
[    3.100001] ref_tracker: memory allocation failure, unreliable refcount tracker.
[    3.100001] name failslab, interval 1, probability 0, space 0, times 1
[    3.100002] CPU: 0 UID: 0 PID: 153 Comm: sh Tainted: G           O
[    3.100003] Call Trace:
[    3.100004]  <TASK>
[    3.100005]  dump_stack_lvl+0x5d/0x80
[    4.789000] I/O error, dev vda, sector 62384 op 0x0:(READ) flags 0x880700 phys_seg 4 prio class 2
BUG
this is no WARNING: at all
debugging: BUG: in the middle of a line
"""

# The line that tells a report, by kind, as kernels print them.
TELLING = {
    "panic": ["Kernel panic - not syncing: Fatal exception"],
    "oops": [
        "Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP PTI",
        "Oops: 0002 [#1] SMP",
        "BUG: unable to handle page fault for address: ffffffffdeadbeef",
        "BUG: kernel NULL pointer dereference, address: 0000000000000000",
        "kernel BUG at mm/slub.c:4440!",
        "sysrq: Trigger a crash",
        "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000000",
        "Internal error: Oops: 0000000096000044 [#1]  SMP",
    ],
    "KASAN": [
        "BUG: KASAN: slab-use-after-free in ferrule_poll+0x12/0x40 [ferrule]",
        "KASAN: null-ptr-deref in range [0x0000000000000000-0x0000000000000007]",
    ],
    "KCSAN": ["BUG: KCSAN: data-race in ferrule_poll [ferrule] / ferrule_kick [ferrule]"],
    "soft lockup": ["watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [ib_send_bw:211]"],
    "workqueue lockup": ["BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!"],
    "BUG": [
        "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:591",
        "BUG: scheduling while atomic: sh/153/0x00000002",
        "BUG: spinlock recursion on CPU#0, sh/153",
        "BUG: Bad page state in process sh  pfn:12345",
        "BUG kmalloc-64 (Tainted: G    B      O    ): Left Redzone overwritten",
    ],
    "hung task": ["INFO: task rmmod:312 blocked for more than 120 seconds."],
    "RCU stall": [
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 63 jiffies s: 29 root: 0x2/.",
    ],
    "refcount": ["refcount_t: underflow; use-after-free."],
    "lockdep": [
        "WARNING: possible circular locking dependency detected",
        "WARNING: possible recursive locking detected",
        "WARNING: inconsistent lock state",
        "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected",
        "WARNING: suspicious RCU usage",
        "WARNING: bad unlock balance detected!",
        "WARNING: held lock freed!",
        "INFO: trying to register non-static key.",
        "[ BUG: Invalid wait context ]",
    ],
    "UBSAN": ["UBSAN: shift-out-of-bounds in lib/x.c:12:3"],
    "kmemleak": [
        "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
        "unreferenced object 0xffff888004a3c000 (size 64):",
    ],
    "debug object": ["ODEBUG: free active (active state 0) object: 00000000deadbeef object type: timer_list"],
    "lost reference": [
        "unregister_netdevice: waiting for veth0 to become free. Usage count = 2",
        "ref_tracker: netdev@ffff888004a3c5f8 has 1/1 users at",
        "ref_tracker: reference already released.",
    ],
    "list corruption": ["list_del corruption. prev->next should be ffff88800, but was dead000000000100"],
    "WARNING": [
        "WARNING: CPU: 1 PID: 153 at drivers/infiniband/core/verbs.c:2136 ib_dealloc_pd_user+0x8d/0xa0 [ib_core]",
        "WARNING: drivers/infiniband/core/verbs.c:2136 at ib_dealloc_pd_user+0x8d/0xa0, CPU#1: sh/153",
    ],
}

WARN = """\
[   10.000000] ferrule0: link added
[   12.500000] ------------[ cut here ]------------
[   12.500010] refcount_t: underflow; use-after-free.
[   12.500020] WARNING: CPU: 1 PID: 153 at lib/refcount.c:28 refcount_warn_saturate+0xbe/0x110
[   12.500030] Call Trace:
[   12.500040]  <TASK>
[   12.500050]  ferrule_destroy_qp+0x10/0x20 [ferrule]
[   12.500060] ---[ end trace 0000000000000000 ]---
[   12.500070] ferrule0: link deleted
[   14.000000] ------------[ cut here ]------------
[   14.000010] WARNING: CPU: 0 PID: 99 at drivers/x.c:1 f+0x1/0x2
[   14.000020] Call Trace:
[   14.000030] ---[ end trace 0000000000000000 ]---
[   15.000000] done
"""

KASAN = """\
[   20.000000] ==================================================================
[   20.000100] BUG: KASAN: slab-use-after-free in ferrule_poll+0x12/0x40 [ferrule]
[   20.000200] Read of size 8 at addr ffff888004a3c008 by task sh/153
[   20.000300]
[   20.000400] CPU: 0 UID: 0 PID: 153 Comm: sh Tainted: G           O
[   20.200000] Freed by task 99:
[   20.300000] ==================================================================
[   20.310000] ferrule0: link deleted
"""

# The first is among Linux's own functions, of which an interrupt came upon one of ours.
KCSAN = """\
[   30.000000] ==================================================================
[   30.000100] BUG: KCSAN: data-race in tick_nohz_stop_tick / tick_nohz_next_event
[   30.000200]
[   30.000300] write to 0xffffffff82a3c008 of 4 bytes by task 0 on cpu 1:
[   30.000400]  tick_nohz_stop_tick+0x12/0x40
[   30.000450]  ferrule_poll+0x12/0x40 [ferrule]
[   30.000500] Reported by Kernel Concurrency Sanitizer on:
[   30.000600] CPU: 1 UID: 0 PID: 0 Comm: swapper/1 Tainted: G           O
[   30.000700] ==================================================================
[   30.100000] ==================================================================
[   30.100100] BUG: KCSAN: data-race in ferrule_link [ferrule] / ferrule_unlink [ferrule]
[   30.100200]
[   30.100300] read to 0xffff888004a3c008 of 8 bytes by task 153 on cpu 0:
[   30.100500]  ferrule_link+0x12/0x40 [ferrule]
[   30.100600] ==================================================================
"""


class Kinds(unittest.TestCase):
    def test_every_kind_is_told_by_each_of_its_lines(self):
        self.assertEqual(set(TELLING), set(kernlog.KINDS))
        for kind, lines in TELLING.items():
            for line in lines:
                for stamp in ("", "[   12.345678] ", "[   12.345678][  T153] ", "[   12.345678][    C1] "):
                    with self.subTest(line=stamp + line):
                        found = kernlog.scan(f"[    1.000000] before\n{stamp}{line}\n")
                        self.assertEqual([report.kind for report in found], [kind])
                        self.assertEqual(found[0].title, line)

    def test_harmless_lines_are_no_reports(self):
        self.assertEqual(kernlog.scan(HARMLESS), [])

    def test_empty_log(self):
        self.assertEqual(kernlog.scan(""), [])


class Reports(unittest.TestCase):
    def test_a_warning_is_one_report_from_cut_here_to_its_end(self):
        first, second = kernlog.scan(WARN)
        self.assertEqual(first.kind, "refcount")
        self.assertIn("cut here", first.lines[0])
        self.assertIn("end trace", first.lines[-1])
        self.assertEqual(len(first.lines), 7)
        self.assertEqual(second.kind, "WARNING")
        self.assertIn("drivers/x.c", second.title)

    def test_kasan_ends_at_its_rule(self):
        (report,) = kernlog.scan(KASAN)
        self.assertIn("Freed by task 99", report.lines[-2])
        self.assertNotIn("link deleted", "\n".join(report.lines))

    def test_data_races_of_linux_alone_are_left_out(self):
        (report,) = kernlog.scan(KCSAN)
        self.assertIn("ferrule_link", report.title)

    def test_a_pause_ends_a_report(self):
        (report,) = kernlog.scan("[    1.000000] WARNING: x\n[    1.100000] y\n[    3.000000] z\n")
        self.assertEqual(len(report.lines), 2)

    def test_a_report_without_an_end_is_cut(self):
        log = "WARNING: x\n" + "line\n" * 1000
        (report,) = kernlog.scan(log)
        self.assertEqual(len(report.lines), kernlog.MAX_LINES)

    def test_carriage_returns_of_a_serial_console(self):
        (report,) = kernlog.scan("[    1.000000] WARNING: x\r\n")
        self.assertEqual(report.title, "WARNING: x")

    def test_a_panic_within_an_oops_is_one_report(self):
        log = ("[    1.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000\n"
               "[    1.000100] Oops: Oops: 0002 [#1] SMP\n"
               "[    1.000200] Kernel panic - not syncing: Fatal exception\n")
        self.assertEqual([report.kind for report in kernlog.scan(log)], ["oops"])


if __name__ == "__main__":
    unittest.main()

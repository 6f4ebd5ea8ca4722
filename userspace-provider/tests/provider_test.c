// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The tests by their names, each with a kernel of its own. */
#include <stdio.h>

#include <ccan/array_size.h>

#include "provider_test.h"

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "send_wqe", test_send_wqe },
		{ "bind", test_bind },
		{ "send_errors", test_send_errors },
		{ "recv", test_recv },
		{ "srq", test_srq },
		{ "doorbell", test_doorbell },
		{ "deferred_kicks", test_deferred_kicks },
		{ "credit", test_credit },
		{ "stale", test_stale },
		{ "stale_slots", test_stale_slots },
		{ "reset_locks", test_reset_locks },
		{ "initiator_cqs", test_initiator_cqs },
		{ "resize", test_resize },
		{ "resize_no_memory", test_resize_no_memory },
		{ "poll_ex", test_poll_ex },
		{ "clock", test_clock },
		{ "arm", test_arm },
		{ "lost_event", test_lost_event },
		{ "unflushed", test_unflushed },
		{ "yield", test_yield },
		{ "wr_api", test_wr_api },
		{ "placement", test_placement },
		{ "xrc", test_xrc },
		{ "domains", test_domains },
		{ "allocators", test_allocators },
		{ "thread_domain", test_thread_domain },
		{ "threads", test_threads },
		{ "threads_refused", test_threads_refused },
		{ "threads_unsupported", test_threads_unsupported },
		{ "threads_crossed", test_threads_crossed },
		{ "threads_srq", test_threads_srq },
		{ "threads_failed", test_threads_failed },
		{ "threads_all", test_threads_all },
		{ "threads_imported", test_threads_imported },
		{ "stress_worker", test_stress_worker },
		{ "stress_worker_drain", test_stress_worker_drain },
		{ "stress_inline_drain", test_stress_inline_drain },
		{ "stress_deferred_drain", test_stress_deferred_drain },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		printf("%s\n", tests[i].name);
		fflush(stdout);
		fake_open();
		tests[i].run();
		fake_close();
	}
	printf("%u tests passed\n", i);

	return 0;
}

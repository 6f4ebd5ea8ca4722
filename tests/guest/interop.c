// SPDX-License-Identifier: GPL-2.0
/*
 * Two drivers that know each other by the wire alone: DEVICE and the one that
 * PEER_DEVICE names, which is rdma_rxe's, and whose networks are joined. Each
 * case goes both ways: "…_to_peer", where DEVICE asks and its peer answers, and
 * "…_from_peer".
 *
 * Where rdma_rxe is known to do otherwise than the specification says, the case
 * says what it does, and expects that of it.
 */
#include "interop/interop.h"

#define BOTH_WAYS(about) \
	static void about##_to_peer(void) { about(false); } \
	static void about##_from_peer(void) { about(true); }
#define CASES(about) \
	{ #about "_to_peer", about##_to_peer }, \
	{ #about "_from_peer", about##_from_peer }

BOTH_WAYS(sizes)
BOTH_WAYS(immediate)
BOTH_WAYS(inline_data)
BOTH_WAYS(lists)
BOTH_WAYS(unsignalled)
BOTH_WAYS(solicited)
BOTH_WAYS(compare_and_swap)
BOTH_WAYS(fetch_and_add)
BOTH_WAYS(atomic_write)
BOTH_WAYS(flush)
BOTH_WAYS(pipelined)
BOTH_WAYS(invalidate)
BOTH_WAYS(remote_access)
BOTH_WAYS(remote_invalid_request)
BOTH_WAYS(too_long)
BOTH_WAYS(refused_window)
BOTH_WAYS(refused_invalidation)
BOTH_WAYS(rnr_exhausted)
BOTH_WAYS(rnr_waits)
BOTH_WAYS(nobody_answers)
BOTH_WAYS(shared_queue)
BOTH_WAYS(on_demand)
BOTH_WAYS(uc_sizes)
BOTH_WAYS(uc_losses)
BOTH_WAYS(datagrams)

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASES(sizes),
		CASES(immediate),
		CASES(inline_data),
		CASES(lists),
		CASES(unsignalled),
		CASES(solicited),
		CASES(compare_and_swap),
		CASES(fetch_and_add),
		CASES(atomic_write),
		CASES(flush),
		CASES(pipelined),
		CASES(invalidate),
		CASES(remote_access),
		CASES(remote_invalid_request),
		CASES(too_long),
		CASES(refused_window),
		CASES(refused_invalidation),
		CASES(rnr_exhausted),
		CASES(rnr_waits),
		CASES(nobody_answers),
		CASES(shared_queue),
		CASES(on_demand),
		CASES(uc_sizes),
		CASES(uc_losses),
		CASES(datagrams),
		{ }
	};

	return test_main(argc, argv, cases);
}

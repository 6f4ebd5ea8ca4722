/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Little-endian words in memory that is shared with the engine.
 *
 * The other side is a CPU too, in the kernel or in a process of the host, and
 * the memory is ordinary and cached. So C11's memory model orders the two, as
 * between threads; the barriers of util/udma_barrier.h, which are for devices
 * on a bus, would say something else, and on x86 less: they have no store-load
 * barrier.
 */
#ifndef FERRULE_SHARED_H
#define FERRULE_SHARED_H

#include <endian.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <linux/types.h>
#include <util/compiler.h>

static inline uint32_t shared_load32(const __le32 *word, memory_order order)
{
	return le32toh((__force __le32)atomic_load_explicit(
		(const _Atomic(uint32_t) *)word, order));
}

static inline void shared_store32(__le32 *word, uint32_t value,
				  memory_order order)
{
	atomic_store_explicit((_Atomic(uint32_t) *)word,
			      (__force uint32_t)htole32(value), order);
}

static inline uint64_t shared_load64(const __le64 *word, memory_order order)
{
	return le64toh((__force __le64)atomic_load_explicit(
		(const _Atomic(uint64_t) *)word, order));
}

static inline void shared_store64(__le64 *word, uint64_t value,
				  memory_order order)
{
	atomic_store_explicit((_Atomic(uint64_t) *)word,
			      (__force uint64_t)htole64(value), order);
}

/* Replaces *expected; if the word is not that any more, says what it is. */
static inline bool shared_replace32(__le32 *word, uint32_t *expected,
				    uint32_t value)
{
	uint32_t raw = (__force uint32_t)htole32(*expected);
	bool done;

	done = atomic_compare_exchange_strong_explicit(
		(_Atomic(uint32_t) *)word, &raw,
		(__force uint32_t)htole32(value), memory_order_acq_rel,
		memory_order_acquire);
	*expected = le32toh((__force __le32)raw);
	return done;
}

/* As shared_replace32(), but with release semantics alone. */
static inline bool shared_replace64(__le64 *word, uint64_t *expected,
				    uint64_t value)
{
	uint64_t raw = (__force uint64_t)htole64(*expected);
	bool done;

	done = atomic_compare_exchange_strong_explicit(
		(_Atomic(uint64_t) *)word, &raw,
		(__force uint64_t)htole64(value), memory_order_release,
		memory_order_relaxed);
	*expected = le64toh((__force __le64)raw);
	return done;
}

/*
 * A full fence after a word was replaced. On x86 a locked instruction is one by
 * itself (Intel's manual, volume 3, "Memory Ordering": loads and stores are not
 * reordered with it), and C11 has no word for that.
 */
static inline void shared_fence_after_replace(void)
{
#ifdef __x86_64__
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif

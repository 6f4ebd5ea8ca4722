/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * Methods of the driver, beside the verbs: commands by uverbs' ioctl. The
 * rules of ferrule-abi.h hold here, too.
 */
#ifndef FERRULE_USER_IOCTL_CMDS_H
#define FERRULE_USER_IOCTL_CMDS_H

#include <linux/types.h>

/*
 * Driver methods of UVERBS_OBJECT_DEVICE. The numbers begin where uverbs lets
 * a driver's begin (1 << UVERBS_ID_NS_SHIFT).
 *
 * FERRULE_METHOD_KICK takes no attribute: it serves the caller's rung queues
 * within a budget and wakes the worker for what is left. It answers EIO once
 * the device is gone.
 *
 * A context may have more doorbells than those of the open file; each have a
 * number. FERRULE_METHOD_IMPORT makes some for a program that has the file of
 * another one (ibv_import_device): only threads of one process share the lock of
 * a doorbell area. FERRULE_METHOD_UNIMPORT gives the number up; queue pairs that
 * have these doorbells keep them. With 16 in use IMPORT is ENOMEM.
 * FERRULE_METHOD_ADD_THREAD makes some for a thread: queues made with them go on
 * beside those of other threads, if the engine can do so (else EOPNOTSUPP). They
 * stay as long as the context, and there is one for each further processor at
 * most, and 63 (else ENOMEM).
 *
 * FERRULE_METHOD_QUERY_DM tells where a device memory is to be mapped.
 *
 * FERRULE_METHOD_QUERY_CLOCK tells the time by the clock of completions'
 * timestamps. That is CLOCK_MONOTONIC_RAW of the machine with the engine, which
 * is another machine than the program's where the device is a PCI function.
 */
enum ferrule_device_methods {
	FERRULE_METHOD_KICK = (1U << 12),
	FERRULE_METHOD_IMPORT,
	FERRULE_METHOD_UNIMPORT,
	FERRULE_METHOD_KICK_DOORBELLS,
	FERRULE_METHOD_QUERY_DM,
	FERRULE_METHOD_QUERY_CLOCK,
	FERRULE_METHOD_ADD_THREAD,
};

enum ferrule_device_attrs {
	FERRULE_ATTR_DOORBELLS = (1U << 12),	/* struct ferrule_alloc_ucontext_resp */
	FERRULE_ATTR_NUMBER,			/* __u32: the number */
	FERRULE_ATTR_DM,			/* handle: of UVERBS_OBJECT_DM */
	FERRULE_ATTR_DM_PLACE,			/* struct ferrule_dm_place */
	FERRULE_ATTR_CLOCK,			/* __u64: nanoseconds */
};

/* Whole pages are mapped, readable and writable. */
struct ferrule_dm_place {
	__aligned_u64	offset;		/* to be given to mmap() */
	__aligned_u64	length;		/* bytes that were asked for */
};

#endif /* FERRULE_USER_IOCTL_CMDS_H */

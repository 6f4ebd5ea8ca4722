// SPDX-License-Identifier: GPL-2.0
/*
 * The packets that a processor has yet to receive from virtual devices, for the crate net_ext.
 */

#include <linux/netdevice.h>

#include "net.h"

u32 ferrule_helper_backlog_end(unsigned int *cpu)
{
	*cpu = raw_smp_processor_id();
#ifdef CONFIG_RPS
	return READ_ONCE(per_cpu(softnet_data, *cpu).input_queue_tail);
#else
	return 0;
#endif
}

/*
 * A backlog is scheduled as long as packets are in it. It may be so for long if others send, too. Then the counts tell, as
 * they tell get_rps_cpu() whether a flow may move: the packet is in the backlog as long as fewer have come since than are
 * in it. The count of those received does not tell alone, since it goes half around while a flow sends nothing for long.
 */
bool ferrule_helper_backlog_passed(unsigned int cpu, u32 end)
{
	const struct softnet_data *sd = &per_cpu(softnet_data, cpu);

	if (cpu == raw_smp_processor_id() || !test_bit(NAPI_STATE_SCHED, &sd->backlog.state))
		return true;
#ifdef CONFIG_RPS
	/*
	 * It is written under the backlog's lock. If the head has passed the value that was read, the packet seems to be in
	 * the backlog still, and the caller asks again.
	 */
	u32 tail = data_race(READ_ONCE(sd->input_queue_tail));

	return tail - end >= tail - READ_ONCE(sd->input_queue_head);
#else
	return false;
#endif
}

/* Softirqs are off, so the processor stays the same. The first queue is for packets that come while the second is received. */
u32 ferrule_helper_backlog_len(void)
{
	const struct softnet_data *sd = raw_cpu_ptr(&softnet_data);

	return skb_queue_len_lockless(&sd->input_pkt_queue) +
	       skb_queue_len_lockless(&sd->process_queue);
}

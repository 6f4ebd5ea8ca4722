// SPDX-License-Identifier: GPL-2.0
/*
 * Socket buffers, for the crate net_ext.
 */

#include <linux/if_vlan.h>
#include <linux/udp.h>

#include "net.h"

void ferrule_helper_skb_queue_head_init(struct sk_buff_head *list)
{
	skb_queue_head_init(list);
}

u32 ferrule_helper_skb_queue_len_lockless(const struct sk_buff_head *list)
{
	return skb_queue_len_lockless(list);
}

struct sk_buff *ferrule_helper_alloc_skb(unsigned int size)
{
	return alloc_skb(size, GFP_ATOMIC | __GFP_NOWARN);
}

void ferrule_helper_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

unsigned int ferrule_helper_skb_headroom(const struct sk_buff *skb)
{
	return skb_headroom(skb);
}

int ferrule_helper_skb_tailroom(const struct sk_buff *skb)
{
	return skb_tailroom(skb);
}

void ferrule_helper_skb_reserve(struct sk_buff *skb, int len)
{
	skb_reserve(skb, len);
}

struct sk_buff *ferrule_helper_skb_clone(struct sk_buff *skb)
{
	return skb_clone(skb, GFP_ATOMIC | __GFP_NOWARN);
}

bool ferrule_helper_pskb_may_pull(struct sk_buff *skb, unsigned int len)
{
	return pskb_may_pull(skb, len);
}

int ferrule_helper_pskb_trim(struct sk_buff *skb, unsigned int len)
{
	return pskb_trim(skb, len);
}

const void *ferrule_helper_skb_network_header(const struct sk_buff *skb)
{
	return skb_network_header(skb);
}

u8 ferrule_helper_skb_ip_summed(const struct sk_buff *skb)
{
	return skb->ip_summed;
}

bool ferrule_helper_skb_vlan_tag_present(const struct sk_buff *skb)
{
	return skb_vlan_tag_present(skb);
}

u16 ferrule_helper_skb_vlan_tag_get(const struct sk_buff *skb)
{
	return skb_vlan_tag_get(skb);
}

/*
 * How many bytes from `offset` on lie in one piece, and where; 0 where there
 * are none, or none that the processor can reach.
 */
unsigned int ferrule_helper_skb_contiguous(const struct sk_buff *skb, unsigned int offset,
					   const void **bytes)
{
	const struct sk_buff *part;
	unsigned int end = skb_headlen(skb);
	int i;

	BUILD_BUG_ON(IS_ENABLED(CONFIG_HIGHMEM));

	if (offset < end) {
		*bytes = skb->data + offset;
		return end - offset;
	}
	if (!skb_frags_readable(skb))
		return 0;
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		offset -= end;
		end = skb_frag_size(frag);
		if (offset < end) {
			*bytes = (const u8 *)skb_frag_address(frag) + offset;
			return end - offset;
		}
	}
	offset -= end;
	/* Buffers in the list have no lists of their own. */
	skb_walk_frags(skb, part) {
		if (offset < part->len) {
			if (skb_has_frag_list(part))
				return 0;
			return ferrule_helper_skb_contiguous(part, offset, bytes);
		}
		offset -= part->len;
	}
	return 0;
}

/*
 * Hangs a packet of UDP behind the others of a list, in which each has its own
 * headers: that of IP, of `ip_len` bytes, is at its start. This is how GRO leaves
 * lists, and skb_segment_list() expects them, but for the identifications of
 * IPv4, which stay as they are: the name of the flag is that of TCP, but it is
 * the segmentation of IPv4 that goes by it.
 *
 * The sender's socket is charged with all of them until the first one is gone.
 */
void ferrule_helper_skb_list_add(struct sk_buff *head, struct sk_buff *last, struct sk_buff *skb,
				 unsigned int ip_len)
{
	struct skb_shared_info *shared = skb_shinfo(head);

	skb_reset_network_header(skb);
	skb_set_transport_header(skb, ip_len);
	__skb_pull(skb, ip_len + sizeof(struct udphdr));
	if (last == head) {
		shared->gso_type = SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST | SKB_GSO_TCP_FIXEDID;
		shared->gso_size = head->len - ip_len - sizeof(struct udphdr);
		shared->gso_segs = 1;
		shared->frag_list = skb;
		/* There is none to be made. */
		head->ip_summed = CHECKSUM_UNNECESSARY;
	} else {
		last->next = skb;
	}
	shared->gso_segs++;
	head->len += skb->len;
	head->data_len += skb->len;
	head->truesize += skb->truesize;
	/* A receiver of the whole list reads the length of all; the cut restores that of one. */
	((struct udphdr *)(head->data + ip_len))->len = htons(head->len - ip_len);
}

/* The device is in a union. */
struct net_device *ferrule_helper_skb_dev(const struct sk_buff *skb)
{
	return skb->dev;
}

/*
 * Makes a received packet one that may be kept: references that the stack holds
 * under RCU are given back.
 */
void ferrule_helper_skb_detach(struct sk_buff *skb)
{
	skb_orphan(skb);
	skb_dst_drop(skb);
	skb->dev = NULL;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Ethernet frames as they are, for the crate net_ext.
 */

#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <net/gso.h>

#include "net.h"

/* Calls `func` with each frame that comes to the device. */
void ferrule_helper_frames_watch(struct packet_type *type, struct net_device *dev,
				 int (*func)(struct sk_buff *skb, struct net_device *dev,
					     struct packet_type *type,
					     struct net_device *orig_dev),
				 void *private)
{
	memset(type, 0, sizeof(*type));
	type->type = htons(ETH_P_ALL);
	type->dev = dev;
	type->func = func;
	type->ignore_outgoing = true;
	type->af_packet_priv = private;
	dev_add_pack(type);
}

/* Frames that leave by the device from now on, too, or not. */
void ferrule_helper_frames_watch_leaving(struct packet_type *type, bool wanted)
{
	WRITE_ONCE(type->ignore_outgoing, !wanted);
}

/* Waits until nobody calls. */
void ferrule_helper_frames_unwatch(struct packet_type *type)
{
	dev_remove_pack(type);
}

void *ferrule_helper_frames_private(const struct packet_type *type)
{
	return type->af_packet_priv;
}

/* Copies the first bytes of a frame, and returns how many there are. */
int ferrule_helper_frame_head(const struct sk_buff *skb, void *to, int size)
{
	int start = skb_mac_offset(skb);
	int len = min_t(int, size, skb->len - start);

	if (len <= 0 || skb_copy_bits(skb, start, to, len))
		return 0;
	return len;
}

bool ferrule_helper_frame_leaves(const struct sk_buff *skb)
{
	return skb->pkt_type == PACKET_OUTGOING;
}

/*
 * Makes of a frame, as a packet handler gets it, what is on the wire: from the
 * Ethernet header on, with the VLAN tag inside, with checksums, and cut to the
 * frames that it was put together from, or is to be cut to. Returns a list, or
 * NULL without memory. The reference is given up.
 */
struct sk_buff *ferrule_helper_frame_cut(struct sk_buff *skb)
{
	struct sk_buff *list, *frame;

	skb = skb_share_check(skb, GFP_ATOMIC);
	if (!skb)
		return NULL;
	if (skb_mac_offset(skb) < 0)
		skb_push(skb, -skb_mac_offset(skb));
	/* It is of the bytes behind the header. */
	if (skb->ip_summed == CHECKSUM_COMPLETE)
		skb->ip_summed = CHECKSUM_NONE;
	if (skb_vlan_tag_present(skb)) {
		skb = __vlan_hwaccel_push_inside(skb);
		if (!skb)
			return NULL;
	}
	list = skb;
	if (skb_is_gso(skb)) {
		list = __skb_gso_segment(skb, NETIF_F_SG, false);
		if (IS_ERR_OR_NULL(list)) {
			kfree_skb(skb);
			return NULL;
		}
		consume_skb(skb);
	} else if (skb->ip_summed == CHECKSUM_PARTIAL && skb_checksum_help(skb)) {
		kfree_skb(skb);
		return NULL;
	}
	for (frame = list; frame; frame = frame->next)
		ferrule_helper_skb_detach(frame);
	return list;
}

/* Takes the first packet off a list. */
struct sk_buff *ferrule_helper_skb_list_pop(struct sk_buff **list)
{
	struct sk_buff *skb = *list;

	if (skb) {
		*list = skb->next;
		skb_mark_not_on_list(skb);
	}
	return skb;
}

u32 ferrule_helper_skb_mark(const struct sk_buff *skb)
{
	return skb->mark;
}

void ferrule_helper_skb_set_mark(struct sk_buff *skb, u32 mark)
{
	skb->mark = mark;
}

/* The space that the device may need around a frame. */
unsigned int ferrule_helper_netdev_headroom(const struct net_device *dev)
{
	return LL_RESERVED_SPACE(dev);
}

/*
 * Sends a frame, which has an Ethernet header at its start, and charges it to a
 * socket. The packet is gone in any case.
 */
int ferrule_helper_frame_xmit(struct sk_buff *skb, struct net_device *dev, struct sock *charged)
{
	int depth = ETH_HLEN;
	int err;

	skb->dev = dev;
	skb_reset_mac_header(skb);
	skb->protocol = eth_hdr(skb)->h_proto;
	if (!eth_proto_is_802_3(skb->protocol))
		skb->protocol = htons(ETH_P_802_2);
	else if (eth_type_vlan(skb->protocol) && !__vlan_get_protocol(skb, skb->protocol, &depth))
		depth = ETH_HLEN;
	skb_set_network_header(skb, depth);
	skb_set_owner_w(skb, charged);
	err = dev_queue_xmit(skb);
	return err > 0 ? net_xmit_errno(err) : err;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The layout that the C compiler of the kernel gives to the structures that
 * Rust uses.
 *
 * bindgen asks libclang for layouts, while the kernel may be built by another
 * compiler, and the types are put together from two runs of bindgen. So this
 * file is compiled, but only to assembly: kbuild makes layout_generated.rs of
 * its remarks, and layout.rs does not compile where Rust and C differ.
 *
 * Named here is each structure that crosses between Rust and C by value or that
 * one allocates for the other, and each field that Rust touches.
 */

#include "bindings_helper.h"

/* The sed script in Kbuild looks for "->"; %c prints a number bare. */
#define SIZE(type)						\
	asm volatile("\n.ascii \"->size!(" #type ", %c0, %c1);\"" \
		     : : "i" (sizeof(struct type)), "i" (__alignof__(struct type)))

/* Rust may call a field otherwise: type is a keyword, and unions have no name. */
#define FIELD_AS(type, member, rust)				\
	asm volatile("\n.ascii \"->field!(" #type ", " #rust ", %c0, %c1);\"" \
		     : : "i" (offsetof(struct type, member)),	\
			 "i" (sizeof_field(struct type, member)))

#define FIELD(type, member) FIELD_AS(type, member, member)

void layout(void);

void layout(void)
{
	/* The device. */
	SIZE(ib_device);
	FIELD(ib_device, ops);
	FIELD(ib_device, name);
	FIELD(ib_device, port_data);
	FIELD(ib_device, num_comp_vectors);
	FIELD_AS(ib_device, coredev, __bindgen_anon_1);
	FIELD(ib_device, uverbs_cmd_mask);
	FIELD(ib_device, node_desc);
	FIELD(ib_device, node_guid);
	FIELD(ib_device, node_type);
	FIELD(ib_device, phys_port_cnt);
	FIELD(ib_device, driver_def);
	FIELD(ib_device, link_ops);
	FIELD(ib_device, name_assign_type);

	SIZE(ib_device_ops);
	FIELD(ib_device_ops, owner);
	FIELD(ib_device_ops, driver_id);
	FIELD(ib_device_ops, uverbs_abi_ver);
	FIELD(ib_device_ops, add_gid);
	FIELD(ib_device_ops, alloc_dm);
	FIELD(ib_device_ops, alloc_hw_port_stats);
	FIELD(ib_device_ops, alloc_mr);
	FIELD(ib_device_ops, alloc_mw);
	FIELD(ib_device_ops, alloc_pd);
	FIELD(ib_device_ops, alloc_ucontext);
	FIELD(ib_device_ops, alloc_xrcd);
	FIELD(ib_device_ops, attach_mcast);
	FIELD(ib_device_ops, counter_alloc_stats);
	FIELD(ib_device_ops, counter_bind_qp);
	FIELD(ib_device_ops, counter_dealloc);
	FIELD(ib_device_ops, counter_init);
	FIELD(ib_device_ops, counter_unbind_qp);
	FIELD(ib_device_ops, counter_update_stats);
	FIELD(ib_device_ops, create_ah);
	FIELD(ib_device_ops, create_cq);
	FIELD(ib_device_ops, create_qp);
	FIELD(ib_device_ops, create_srq);
	FIELD(ib_device_ops, create_user_ah);
	FIELD(ib_device_ops, dealloc_dm);
	FIELD(ib_device_ops, dealloc_driver);
	FIELD(ib_device_ops, dealloc_mw);
	FIELD(ib_device_ops, dealloc_pd);
	FIELD(ib_device_ops, dealloc_ucontext);
	FIELD(ib_device_ops, dealloc_xrcd);
	FIELD(ib_device_ops, del_gid);
	FIELD(ib_device_ops, dereg_mr);
	FIELD(ib_device_ops, destroy_ah);
	FIELD(ib_device_ops, destroy_cq);
	FIELD(ib_device_ops, destroy_qp);
	FIELD(ib_device_ops, destroy_srq);
	FIELD(ib_device_ops, detach_mcast);
	FIELD(ib_device_ops, device_group);
	FIELD(ib_device_ops, disassociate_ucontext);
	FIELD(ib_device_ops, get_dev_fw_str);
	FIELD(ib_device_ops, get_dma_mr);
	FIELD(ib_device_ops, get_hw_stats);
	FIELD(ib_device_ops, get_link_layer);
	FIELD(ib_device_ops, get_port_immutable);
	FIELD(ib_device_ops, map_mr_sg);
	FIELD(ib_device_ops, mmap);
	FIELD(ib_device_ops, mmap_free);
	FIELD(ib_device_ops, modify_qp);
	FIELD(ib_device_ops, modify_srq);
	FIELD(ib_device_ops, poll_cq);
	FIELD(ib_device_ops, post_recv);
	FIELD(ib_device_ops, post_send);
	FIELD(ib_device_ops, post_srq_recv);
	FIELD(ib_device_ops, query_ah);
	FIELD(ib_device_ops, query_device);
	FIELD(ib_device_ops, query_gid);
	FIELD(ib_device_ops, query_pkey);
	FIELD(ib_device_ops, query_port);
	FIELD(ib_device_ops, query_qp);
	FIELD(ib_device_ops, query_srq);
	FIELD(ib_device_ops, reg_dm_mr);
	FIELD(ib_device_ops, reg_user_mr);
	FIELD(ib_device_ops, req_notify_cq);
	FIELD(ib_device_ops, rereg_user_mr);
	FIELD(ib_device_ops, resize_user_cq);
	FIELD(ib_device_ops, ufile_hw_cleanup);
	FIELD(ib_device_ops, size_ib_ah);
	FIELD(ib_device_ops, size_ib_cq);
	FIELD(ib_device_ops, size_ib_mw);
	FIELD(ib_device_ops, size_ib_pd);
	FIELD(ib_device_ops, size_ib_qp);
	FIELD(ib_device_ops, size_ib_srq);
	FIELD(ib_device_ops, size_ib_ucontext);
	FIELD(ib_device_ops, size_ib_xrcd);
	FIELD(ib_device_ops, size_rdma_counter);

	SIZE(ib_device_attr);
	FIELD(ib_device_attr, fw_ver);
	FIELD(ib_device_attr, sys_image_guid);
	FIELD(ib_device_attr, max_mr_size);
	FIELD(ib_device_attr, page_size_cap);
	FIELD(ib_device_attr, vendor_id);
	FIELD(ib_device_attr, vendor_part_id);
	FIELD(ib_device_attr, hw_ver);
	FIELD(ib_device_attr, max_qp);
	FIELD(ib_device_attr, max_qp_wr);
	FIELD(ib_device_attr, device_cap_flags);
	FIELD(ib_device_attr, kernel_cap_flags);
	FIELD(ib_device_attr, max_send_sge);
	FIELD(ib_device_attr, max_recv_sge);
	FIELD(ib_device_attr, max_sge_rd);
	FIELD(ib_device_attr, max_cq);
	FIELD(ib_device_attr, max_cqe);
	FIELD(ib_device_attr, max_mr);
	FIELD(ib_device_attr, max_pd);
	FIELD(ib_device_attr, max_qp_rd_atom);
	FIELD(ib_device_attr, max_res_rd_atom);
	FIELD(ib_device_attr, max_qp_init_rd_atom);
	FIELD(ib_device_attr, atomic_cap);
	FIELD(ib_device_attr, max_mw);
	FIELD(ib_device_attr, max_mcast_grp);
	FIELD(ib_device_attr, max_mcast_qp_attach);
	FIELD(ib_device_attr, max_total_mcast_qp_attach);
	FIELD(ib_device_attr, max_ah);
	FIELD(ib_device_attr, max_srq);
	FIELD(ib_device_attr, max_srq_wr);
	FIELD(ib_device_attr, max_srq_sge);
	FIELD(ib_device_attr, max_fast_reg_page_list_len);
	FIELD(ib_device_attr, max_pkeys);
	FIELD(ib_device_attr, local_ca_ack_delay);
	FIELD(ib_device_attr, timestamp_mask);
	FIELD(ib_device_attr, hca_core_clock);
	FIELD(ib_device_attr, max_dm_size);
	FIELD(ib_device_attr, max_raw_ethy_qp);

	SIZE(ib_port_attr);
	FIELD(ib_port_attr, state);
	FIELD(ib_port_attr, max_mtu);
	FIELD(ib_port_attr, active_mtu);
	FIELD(ib_port_attr, gid_tbl_len);
	FIELD(ib_port_attr, port_cap_flags);
	FIELD(ib_port_attr, max_msg_sz);
	FIELD(ib_port_attr, max_vl_num);
	FIELD(ib_port_attr, bad_pkey_cntr);
	FIELD(ib_port_attr, qkey_viol_cntr);
	FIELD(ib_port_attr, pkey_tbl_len);
	FIELD(ib_port_attr, active_width);
	FIELD(ib_port_attr, active_speed);
	FIELD(ib_port_attr, phys_state);

	SIZE(ib_port_immutable);
	FIELD(ib_port_immutable, pkey_tbl_len);
	FIELD(ib_port_immutable, gid_tbl_len);
	FIELD(ib_port_immutable, core_cap_flags);
	FIELD(ib_port_immutable, max_mad_size);

	SIZE(ib_port_data);
	FIELD(ib_port_data, cache);
	FIELD(ib_port_data, cache.gid);

	SIZE(rdma_stat_desc);
	FIELD(rdma_stat_desc, name);
	SIZE(rdma_hw_stats);

	SIZE(rdma_counter);
	FIELD(rdma_counter, device);
	FIELD(rdma_counter, id);
	FIELD(rdma_counter, stats);

	SIZE(ib_event);
	FIELD(ib_event, device);
	FIELD(ib_event, element);
	FIELD(ib_event, event);

	SIZE(rdma_link_ops);
	FIELD_AS(rdma_link_ops, type, type_);
	FIELD(rdma_link_ops, newlink);
	FIELD(rdma_link_ops, dellink);

	/* Calls of user space. */
	SIZE(ib_udata);
	FIELD(ib_udata, inlen);
	FIELD(ib_udata, outlen);

	SIZE(uverbs_method_def);
	FIELD(uverbs_method_def, id);
	FIELD(uverbs_method_def, flags);
	FIELD(uverbs_method_def, num_attrs);
	FIELD(uverbs_method_def, attrs);
	FIELD(uverbs_method_def, handler);

	SIZE(uverbs_object_def);
	FIELD(uverbs_object_def, id);
	FIELD(uverbs_object_def, type_attrs);
	FIELD(uverbs_object_def, num_methods);
	FIELD(uverbs_object_def, methods);

	SIZE(uapi_definition);
	FIELD(uapi_definition, kind);
	FIELD_AS(uapi_definition, chain_obj_tree, __bindgen_anon_2.chain_obj_tree);

	SIZE(ib_ucontext);
	FIELD(ib_ucontext, device);
	FIELD(ib_ucontext, mmap_xa);

	SIZE(rdma_user_mmap_entry);
	FIELD(rdma_user_mmap_entry, start_pgoff);
	FIELD(rdma_user_mmap_entry, npages);

	/* Objects. */
	SIZE(ib_pd);
	FIELD(ib_pd, device);
	FIELD(ib_pd, uobject);

	SIZE(ib_mr);
	FIELD(ib_mr, device);
	FIELD(ib_mr, pd);
	FIELD(ib_mr, lkey);
	FIELD(ib_mr, rkey);
	FIELD(ib_mr, iova);
	FIELD(ib_mr, length);
	FIELD(ib_mr, page_size);
	FIELD_AS(ib_mr, type, type_);

	SIZE(ib_umem);
	FIELD(ib_umem, ibdev);
	FIELD(ib_umem, length);
	FIELD(ib_umem, address);
	FIELD(ib_umem, sgt_append);

	SIZE(ib_cq);
	FIELD(ib_cq, device);
	FIELD(ib_cq, uobject);
	FIELD(ib_cq, comp_handler);
	FIELD(ib_cq, event_handler);
	FIELD(ib_cq, cq_context);
	FIELD(ib_cq, cqe);

	SIZE(ib_cq_init_attr);
	FIELD(ib_cq_init_attr, cqe);
	FIELD(ib_cq_init_attr, comp_vector);
	FIELD(ib_cq_init_attr, flags);

	SIZE(ib_wc);
	FIELD_AS(ib_wc, wr_id, __bindgen_anon_1);
	FIELD(ib_wc, status);
	FIELD(ib_wc, opcode);
	FIELD(ib_wc, vendor_err);
	FIELD(ib_wc, byte_len);
	FIELD(ib_wc, qp);
	FIELD(ib_wc, ex);
	FIELD(ib_wc, src_qp);
	FIELD(ib_wc, wc_flags);
	FIELD(ib_wc, pkey_index);
	FIELD(ib_wc, sl);
	FIELD(ib_wc, port_num);

	SIZE(ib_qp);
	FIELD(ib_qp, device);
	FIELD(ib_qp, pd);
	FIELD(ib_qp, send_cq);
	FIELD(ib_qp, recv_cq);
	FIELD(ib_qp, srq);
	FIELD(ib_qp, uobject);
	FIELD(ib_qp, event_handler);
	FIELD(ib_qp, qp_context);
	FIELD(ib_qp, qp_num);
	FIELD(ib_qp, qp_type);
	FIELD(ib_qp, counter);

	SIZE(ib_qp_cap);
	FIELD(ib_qp_cap, max_send_wr);
	FIELD(ib_qp_cap, max_recv_wr);
	FIELD(ib_qp_cap, max_send_sge);
	FIELD(ib_qp_cap, max_recv_sge);
	FIELD(ib_qp_cap, max_inline_data);

	SIZE(ib_qp_init_attr);
	FIELD(ib_qp_init_attr, xrcd);
	FIELD(ib_qp_init_attr, cap);
	FIELD(ib_qp_init_attr, sq_sig_type);
	FIELD(ib_qp_init_attr, qp_type);
	FIELD(ib_qp_init_attr, create_flags);
	FIELD(ib_qp_init_attr, port_num);

	SIZE(ib_qp_attr);
	FIELD(ib_qp_attr, qp_state);
	FIELD(ib_qp_attr, cur_qp_state);
	FIELD(ib_qp_attr, path_mtu);
	FIELD(ib_qp_attr, path_mig_state);
	FIELD(ib_qp_attr, qkey);
	FIELD(ib_qp_attr, rq_psn);
	FIELD(ib_qp_attr, sq_psn);
	FIELD(ib_qp_attr, dest_qp_num);
	FIELD(ib_qp_attr, qp_access_flags);
	FIELD(ib_qp_attr, cap);
	FIELD(ib_qp_attr, ah_attr);
	FIELD(ib_qp_attr, pkey_index);
	FIELD(ib_qp_attr, en_sqd_async_notify);
	FIELD(ib_qp_attr, sq_draining);
	FIELD(ib_qp_attr, max_rd_atomic);
	FIELD(ib_qp_attr, max_dest_rd_atomic);
	FIELD(ib_qp_attr, min_rnr_timer);
	FIELD(ib_qp_attr, port_num);
	FIELD(ib_qp_attr, timeout);
	FIELD(ib_qp_attr, retry_cnt);
	FIELD(ib_qp_attr, rnr_retry);
	FIELD(ib_qp_attr, rate_limit);

	SIZE(ib_srq);
	FIELD(ib_srq, device);
	FIELD(ib_srq, pd);
	FIELD(ib_srq, event_handler);
	FIELD(ib_srq, srq_context);
	FIELD(ib_srq, srq_type);
	FIELD(ib_srq, ext);

	SIZE(ib_srq_init_attr);
	FIELD(ib_srq_init_attr, attr);
	FIELD(ib_srq_init_attr, srq_type);

	SIZE(ib_srq_attr);
	FIELD(ib_srq_attr, max_wr);
	FIELD(ib_srq_attr, max_sge);
	FIELD(ib_srq_attr, srq_limit);

	SIZE(ib_xrcd);
	FIELD(ib_xrcd, device);

	SIZE(ib_dm);
	FIELD(ib_dm, device);
	FIELD(ib_dm, length);

	SIZE(ib_flow);

	SIZE(ib_flow_attr);
	FIELD_AS(ib_flow_attr, type, type_);
	FIELD(ib_flow_attr, size);
	FIELD(ib_flow_attr, priority);
	FIELD(ib_flow_attr, flags);
	SIZE(ib_flow_eth_filter);
	SIZE(ib_flow_ipv4_filter);
	SIZE(ib_flow_ipv6_filter);
	SIZE(ib_flow_tcp_udp_filter);
	FIELD(ib_flow_spec_eth, val);
	FIELD(ib_flow_spec_eth, mask);
	FIELD(ib_flow_spec_ipv4, val);
	FIELD(ib_flow_spec_ipv4, mask);
	FIELD(ib_flow_spec_ipv6, val);
	FIELD(ib_flow_spec_ipv6, mask);
	FIELD(ib_flow_spec_tcp_udp, val);
	FIELD(ib_flow_spec_tcp_udp, mask);

	SIZE(ib_dm_alloc_attr);
	FIELD(ib_dm_alloc_attr, length);
	FIELD(ib_dm_alloc_attr, alignment);

	SIZE(ib_dm_mr_attr);
	FIELD(ib_dm_mr_attr, length);
	FIELD(ib_dm_mr_attr, offset);
	FIELD(ib_dm_mr_attr, access_flags);

	SIZE(ib_mw);
	FIELD(ib_mw, device);
	FIELD(ib_mw, pd);
	FIELD(ib_mw, rkey);
	FIELD_AS(ib_mw, type, type_);

	/* Work requests. */
	SIZE(ib_sge);
	FIELD(ib_sge, addr);
	FIELD(ib_sge, length);
	FIELD(ib_sge, lkey);

	SIZE(ib_send_wr);
	FIELD(ib_send_wr, next);
	FIELD_AS(ib_send_wr, wr_id, __bindgen_anon_1);
	FIELD(ib_send_wr, sg_list);
	FIELD(ib_send_wr, num_sge);
	FIELD(ib_send_wr, opcode);
	FIELD(ib_send_wr, send_flags);
	FIELD(ib_send_wr, ex);

	SIZE(ib_rdma_wr);
	FIELD(ib_rdma_wr, wr);
	FIELD(ib_rdma_wr, remote_addr);
	FIELD(ib_rdma_wr, rkey);

	SIZE(ib_reg_wr);
	FIELD(ib_reg_wr, wr);
	FIELD(ib_reg_wr, mr);
	FIELD(ib_reg_wr, key);
	FIELD(ib_reg_wr, access);

	SIZE(ib_atomic_wr);
	FIELD(ib_atomic_wr, wr);
	FIELD(ib_atomic_wr, remote_addr);
	FIELD(ib_atomic_wr, compare_add);
	FIELD(ib_atomic_wr, swap);
	FIELD(ib_atomic_wr, rkey);

	SIZE(ib_ud_wr);
	FIELD(ib_ud_wr, wr);
	FIELD(ib_ud_wr, ah);
	FIELD(ib_ud_wr, remote_qpn);
	FIELD(ib_ud_wr, remote_qkey);

	SIZE(ib_recv_wr);
	FIELD(ib_recv_wr, next);
	FIELD_AS(ib_recv_wr, wr_id, __bindgen_anon_1);
	FIELD(ib_recv_wr, sg_list);
	FIELD(ib_recv_wr, num_sge);

	/* Addresses. */
	SIZE(ib_ah);
	FIELD(ib_ah, device);
	FIELD(ib_ah, pd);

	SIZE(rdma_ah_init_attr);
	FIELD(rdma_ah_init_attr, ah_attr);
	FIELD(rdma_ah_init_attr, flags);

	SIZE(rdma_ah_attr);
	FIELD(rdma_ah_attr, grh);
	FIELD(rdma_ah_attr, sl);
	FIELD(rdma_ah_attr, static_rate);
	FIELD(rdma_ah_attr, port_num);
	FIELD(rdma_ah_attr, ah_flags);
	FIELD_AS(rdma_ah_attr, type, type_);

	SIZE(ib_global_route);
	FIELD(ib_global_route, sgid_attr);
	FIELD(ib_global_route, dgid);
	FIELD(ib_global_route, flow_label);
	FIELD(ib_global_route, sgid_index);
	FIELD(ib_global_route, hop_limit);
	FIELD(ib_global_route, traffic_class);

	SIZE(ib_gid_attr);
	FIELD(ib_gid_attr, device);
	FIELD(ib_gid_attr, gid);
	FIELD(ib_gid_attr, gid_type);
	FIELD(ib_gid_attr, index);
	FIELD(ib_gid_attr, port_num);

	/* Networking. */
	FIELD(sk_buff, head);
	FIELD(sk_buff, data);
	FIELD(sk_buff, len);
	FIELD(sk_buff, data_len);
	FIELD(socket, sk);
	SIZE(in6_addr);
	SIZE(notifier_block);
	FIELD(notifier_block, notifier_call);

	SIZE(pernet_operations);
	FIELD(pernet_operations, init);
	FIELD(pernet_operations, exit);
	FIELD(pernet_operations, id);
	FIELD(pernet_operations, size);

	SIZE(packet_type);

	SIZE(udp_port_cfg);

	SIZE(udp_tunnel_sock_cfg);
	FIELD(udp_tunnel_sock_cfg, sk_user_data);
	FIELD(udp_tunnel_sock_cfg, encap_type);
	FIELD(udp_tunnel_sock_cfg, encap_rcv);
}

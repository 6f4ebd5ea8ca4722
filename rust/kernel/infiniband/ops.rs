// SPDX-License-Identifier: GPL-2.0

//! The table by which the core calls a driver.

use crate::{
    ah,
    ah::Operations as _,
    bindings,
    counter,
    cq,
    cq::Operations as _,
    details,
    device,
    dm,
    dm::Operations as _,
    flow,
    flow::Operations as _,
    mmap,
    module::this_module,
    mr,
    mr::Operations as _,
    mw,
    mw::Operations as _,
    object::Object,
    pd,
    pd::Operations as _,
    pma,
    qp,
    qp::Operations as _,
    srq,
    srq::Operations as _,
    stats,
    ucontext,
    ucontext::Operations as _,
    xrcd,
    xrcd::Operations as _,
    Driver, //
};

/// The core's operations on devices of the driver `D`.
///
/// Verbs that the driver does not implement are left out, so that the core knows.
pub(crate) fn device_ops<D: Driver>() -> bindings::ib_device_ops {
    const { assert!(D::ID != 0, "0 stands for any driver") };
    let mut ops: bindings::ib_device_ops = pin_init::zeroed();

    ops.owner = this_module();
    ops.driver_id = D::ID;
    ops.uverbs_abi_ver = D::ABI_VERSION;
    ops.set_uverbs_robust_udata(1);
    // SAFETY: Any thread may ask for it. It is there as long as this module.
    ops.device_group = unsafe { bindings::device_group() };

    ops.query_device = Some(device::verbs::query_device::<D>);
    ops.query_port = Some(device::verbs::query_port::<D>);
    ops.get_port_immutable = Some(device::verbs::get_port_immutable::<D>);
    ops.get_link_layer = Some(device::verbs::get_link_layer);
    ops.query_pkey = Some(device::verbs::query_pkey::<D>);
    ops.enable_driver = Some(device::verbs::enable_driver::<D>);
    ops.dealloc_driver = Some(device::verbs::dealloc_driver::<D>);
    if D::HAS_FW_VERSION {
        ops.get_dev_fw_str = Some(device::verbs::get_dev_fw_str::<D>);
    }
    if D::HAS_ADD_GID {
        ops.add_gid = Some(device::verbs::add_gid::<D>);
    }
    if D::HAS_DEL_GID {
        ops.del_gid = Some(device::verbs::del_gid::<D>);
    }

    if !D::COUNTERS.is_empty() {
        ops.alloc_hw_port_stats = Some(stats::alloc_hw_port_stats::<D>);
        ops.get_hw_stats = Some(stats::get_hw_stats::<D>);
    }

    if D::QP_COUNTERS.is_some() {
        const { assert!(D::QP_COUNTERS.is_none() || !D::COUNTERS.is_empty()) };
        ops.counter_init = Some(counter::init);
        ops.counter_alloc_stats = Some(counter::alloc_stats::<D>);
        ops.counter_update_stats = Some(counter::update_stats::<D>);
        ops.counter_bind_qp = Some(counter::bind::<D>);
        ops.counter_unbind_qp = Some(counter::unbind::<D>);
        ops.counter_dealloc = Some(counter::dealloc::<D>);
        ops.size_rdma_counter = size_of::<bindings::rdma_counter>();
    }

    if D::PORT_COUNTERS.is_some() {
        ops.process_mad = Some(pma::process_mad::<D>);
    }

    if D::DETAILS.is_some() {
        ops.fill_res_qp_entry = Some(details::qp::<D>);
        ops.fill_res_cq_entry = Some(details::cq::<D>);
        ops.fill_res_mr_entry = Some(details::mr::<D>);
        ops.fill_res_srq_entry = Some(details::srq::<D>);
    }

    ops.alloc_ucontext = Some(ucontext::alloc_callback::<D>);
    ops.dealloc_ucontext = Some(ucontext::dealloc_callback::<D>);
    // Without this, the device could not go before the last program has closed its file.
    ops.disassociate_ucontext = Some(ucontext::disassociate_callback::<D>);
    if D::Ucontext::IMPORTABLE {
        ops.query_ucontext = Some(ucontext::query_callback);
    }
    if D::Ucontext::HAS_QUIESCE {
        ops.ufile_hw_cleanup = Some(ucontext::quiesce_callback::<D>);
    }
    ops.mmap = Some(mmap::mmap_callback);
    ops.mmap_free = Some(mmap::free_callback);

    ops.alloc_pd = Some(pd::alloc_callback::<D>);
    ops.dealloc_pd = Some(pd::dealloc_callback::<D>);

    if D::Pd::HAS_PREFETCH {
        ops.advise_mr = Some(pd::advise_callback::<D>);
    }

    ops.reg_user_mr = Some(mr::reg_user_callback::<D>);
    ops.dereg_mr = Some(mr::dereg_callback::<D>);
    if D::Mr::HAS_REG_DMA_BUF {
        ops.reg_user_mr_dmabuf = Some(mr::reg_dma_buf_callback::<D>);
    }
    if D::Mr::HAS_REREG_USER {
        ops.rereg_user_mr = Some(mr::rereg_user_callback::<D>);
    }

    if D::Mr::HAS_GET_DMA {
        ops.get_dma_mr = Some(mr::kernel_users::get_dma_callback::<D>);
    }

    if D::Mr::HAS_ALLOC && D::Mr::MAX_PAGES > 0 {
        ops.alloc_mr = Some(mr::kernel_users::alloc_callback::<D>);
        ops.map_mr_sg = Some(mr::kernel_users::map_callback::<D>);
    }

    if D::Dm::SUPPORTED {
        ops.alloc_dm = Some(dm::alloc_callback::<D>);
        ops.dealloc_dm = Some(dm::dealloc_callback::<D>);
        ops.reg_dm_mr = Some(dm::reg_callback::<D>);
    }

    if D::Flow::SUPPORTED {
        ops.create_flow = Some(flow::create_callback::<D>);
        ops.destroy_flow = Some(flow::destroy_callback::<D>);
    }

    // The write commands need the former even if there is the latter.
    ops.create_cq = Some(cq::create_callback::<D>);
    ops.create_user_cq = Some(cq::create_callback::<D>);
    ops.destroy_cq = Some(cq::destroy_callback::<D>);
    ops.pre_destroy_cq = Some(cq::pre_destroy_callback::<D>);
    ops.post_destroy_cq = Some(cq::post_destroy_callback::<D>);
    if D::Cq::HAS_RESIZE {
        ops.resize_user_cq = Some(cq::resize_callback::<D>);
    }
    if D::Cq::HAS_MODERATE {
        ops.modify_cq = Some(cq::modify_callback::<D>);
    }

    if D::Cq::HAS_POLL {
        ops.poll_cq = Some(cq::poll_callback::<D>);
    }
    if D::Cq::HAS_REQ_NOTIFY {
        ops.req_notify_cq = Some(cq::req_notify_callback::<D>);
    }

    ops.create_qp = Some(qp::callbacks::create::<D>);
    ops.modify_qp = Some(qp::callbacks::modify::<D>);
    ops.query_qp = Some(qp::callbacks::query::<D>);
    ops.destroy_qp = Some(qp::callbacks::destroy::<D>);
    // The core drains a queue by a request of its own that is flushed.
    if D::Qp::HAS_POST_SEND {
        ops.post_send = Some(qp::callbacks::post_send::<D>);
    }
    if D::Qp::HAS_POST_RECV {
        ops.post_recv = Some(qp::callbacks::post_recv::<D>);
    }
    if D::Qp::HAS_ATTACH_MCAST && D::Qp::HAS_DETACH_MCAST {
        ops.attach_mcast = Some(qp::callbacks::attach_mcast::<D>);
        ops.detach_mcast = Some(qp::callbacks::detach_mcast::<D>);
    }

    if D::Ah::SUPPORTED {
        ops.create_ah = Some(ah::create_callback::<D>);
        ops.create_user_ah = Some(ah::create_callback::<D>);
        ops.destroy_ah = Some(ah::destroy_callback::<D>);
        ops.query_ah = Some(ah::query_callback::<D>);
    }

    if D::Srq::SUPPORTED {
        ops.create_srq = Some(srq::create_callback::<D>);
        ops.modify_srq = Some(srq::modify_callback::<D>);
        ops.query_srq = Some(srq::query_callback::<D>);
        ops.destroy_srq = Some(srq::destroy_callback::<D>);
        ops.post_srq_recv = Some(srq::post_recv_callback::<D>);
    }
    if D::Mw::SUPPORTED {
        ops.alloc_mw = Some(mw::alloc_callback::<D>);
        ops.dealloc_mw = Some(mw::dealloc_callback::<D>);
    }
    if D::Xrcd::SUPPORTED {
        ops.alloc_xrcd = Some(xrcd::alloc_callback::<D>);
        ops.dealloc_xrcd = Some(xrcd::dealloc_callback::<D>);
    }

    ops.size_ib_ucontext =
        Object::<bindings::ib_ucontext, kernel::sync::Arc<mmap::Entries>, D::Ucontext>::SIZE;
    ops.size_ib_pd = Object::<bindings::ib_pd, (), D::Pd>::SIZE;
    ops.size_ib_cq = Object::<bindings::ib_cq, kernel::sync::Arc<cq::Notifier>, D::Cq>::SIZE;
    ops.size_ib_qp = Object::<bindings::ib_qp, qp::Extra, D::Qp>::SIZE;
    ops.size_ib_srq = Object::<bindings::ib_srq, kernel::sync::Arc<srq::Notifier>, D::Srq>::SIZE;
    ops.size_ib_ah = Object::<bindings::ib_ah, (), D::Ah>::SIZE;
    ops.size_ib_mw = Object::<bindings::ib_mw, (), D::Mw>::SIZE;
    ops.size_ib_xrcd = Object::<bindings::ib_xrcd, (), D::Xrcd>::SIZE;

    ops
}

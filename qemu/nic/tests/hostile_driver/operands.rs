// SPDX-License-Identifier: GPL-2.0

//! Commands of a hostile driver that are nearly good.

use ferrule_nic::interface::*;
use zerocopy::{FromZeros, IntoBytes};

use super::Hostile;
use crate::driver::queues::*;
use crate::driver::*;
use crate::xrc;

impl Hostile<'_> {
    /// The operands of a command that a good driver would send.
    pub(super) fn operands(&mut self) -> (u16, Vec<u8>) {
        let list = self.list();
        let Self { guest, p, ends, .. } = self;
        let context = p.context.number;
        match self.random.below(18) {
            0 => {
                let area = guest.memory.alloc(QP_BYTES);
                let kind = self.random.of(&[qp_type::RC, qp_type::UC, qp_type::UD]);
                let create = create_qp(guest, kind, context, p.pd, p.cq.number, &area);
                (opcode::CREATE_QP, create.as_bytes().to_vec())
            }
            1 => {
                let region = guest.region(p.pd, &self.spare, ALL_RIGHTS);
                (opcode::REG_MR, region.as_bytes().to_vec())
            }
            2 => {
                let mut region = guest.region(p.pd, &self.spare, ALL_RIGHTS);
                region.memory = list;
                (opcode::REG_MR, region.as_bytes().to_vec())
            }
            3 => {
                let create = CreateCq {
                    depth: 64.into(),
                    eq: NONE.into(),
                    ring: guest.memory.list(&self.spare),
                    ctrl: list,
                };
                (opcode::CREATE_CQ, create.as_bytes().to_vec())
            }
            4 => {
                let resize = ResizeCq {
                    cqn: p.cq.number.into(),
                    depth: 64.into(),
                    ring: list,
                };
                (opcode::RESIZE_CQ, resize.as_bytes().to_vec())
            }
            5 => {
                let create = CreateEq {
                    vector: self.random.below(4).into(),
                    depth: 64.into(),
                    area: guest.memory.list(&self.spare),
                };
                (opcode::CREATE_EQ, create.as_bytes().to_vec())
            }
            6 => {
                let set = SetGid {
                    index: 1.into(),
                    valid: 1.into(),
                    gid: self.names.gid,
                };
                (opcode::SET_GID, set.as_bytes().to_vec())
            }
            7 => {
                let mut modify = ModifyQp::new_zeroed();
                modify.number = ends.0.number.into();
                modify.attributes.mask = (self.random.word() as u32).into();
                modify.attributes.state = self.random.below(8).into();
                modify.to = vector(self.names.gid);
                (opcode::MODIFY_QP, modify.as_bytes().to_vec())
            }
            8 => {
                let open = OpenContext {
                    doorbell: list,
                    status: guest.memory.list(&self.spare),
                };
                (opcode::OPEN_CONTEXT, open.as_bytes().to_vec())
            }
            9 => {
                let area = guest.memory.alloc(QP_BYTES);
                let target = self.random.below(2) == 0;
                let kind = [qp_type::XRC_INI, qp_type::XRC_TGT][usize::from(target)];
                let mut create = create_qp(guest, kind, context, p.pd, p.cq.number, &area);
                [xrc::initiator, xrc::target][usize::from(target)](&mut create);
                (opcode::CREATE_QP, create.as_bytes().to_vec())
            }
            10 => {
                let create = xrc::operands(guest, p, &xrc::srq_area(guest));
                (opcode::CREATE_XRC_SRQ, create.as_bytes().to_vec())
            }
            11 => {
                let mut create = xrc::operands(guest, p, &self.spare);
                if self.random.below(2) == 0 {
                    create.srq.area = list;
                }
                (opcode::CREATE_SRQ, create.srq.as_bytes().to_vec())
            }
            12 => {
                let CreateSrq { ring, ctrl, .. } = xrc::operands(guest, p, &self.spare).srq;
                let area = [list, guest.memory.list(&self.spare)][self.random.below(2) as usize];
                let resize = ResizeSrq {
                    number: self.queue.number.into(),
                    limit: self.random.of(&[0, 1, NONE]).into(),
                    ring,
                    ctrl,
                    reserved: 0.into(),
                    area,
                };
                (opcode::RESIZE_SRQ, resize.as_bytes().to_vec())
            }
            13 => {
                let limit = SetSrqLimit {
                    number: self.queue.number.into(),
                    limit: self.random.below(20).into(),
                };
                (opcode::SET_SRQ_LIMIT, limit.as_bytes().to_vec())
            }
            14 => {
                let hold = ModerateCq {
                    cqn: p.cq.number.into(),
                    count: (self.random.word() as u16).into(),
                    period: (self.random.word() as u16).into(),
                };
                (opcode::MODERATE_CQ, hold.as_bytes().to_vec())
            }
            15 => {
                let mut change = guest.region(p.pd, &self.spare, ALL_RIGHTS);
                change.memory = list;
                let again = ReregMr {
                    key: p.key.into(),
                    mask: self.random.below(8).into(),
                    change,
                };
                (opcode::REREG_MR, again.as_bytes().to_vec())
            }
            16 => {
                let create = CreateAh {
                    pd: p.pd.into(),
                    reserved: 0.into(),
                    to: vector(self.names.gid),
                };
                (opcode::CREATE_AH, create.as_bytes().to_vec())
            }
            _ => {
                let mut gid = self.names.gid;
                gid[0] = 0xff;
                let member = Multicast {
                    number: ends.0.number.into(),
                    reserved: 0.into(),
                    gid,
                };
                let opcodes = [opcode::ATTACH_MCAST, opcode::DETACH_MCAST];
                (self.random.of(&opcodes), member.as_bytes().to_vec())
            }
        }
    }
}

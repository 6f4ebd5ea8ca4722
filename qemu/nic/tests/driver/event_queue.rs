// SPDX-License-Identifier: GPL-2.0

//! Event queues as a driver has them.

use ferrule_nic::interface::*;

use super::{Area, Guest};

impl Guest {
    /// Makes the event queue of a vector.
    pub fn event_queue(&mut self, vector: u32, depth: u32) -> Result<EventQueue, u32> {
        let ctrl = (u64::from(depth) * 16).next_multiple_of(64);
        let area = self.memory.alloc(ctrl + 64);
        let create = CreateEq {
            vector: vector.into(),
            depth: depth.into(),
            area: self.memory.list(&area),
        };
        self.command(opcode::CREATE_EQ, &create)?;
        Ok(EventQueue {
            area,
            depth,
            ctrl,
            consumer: 0,
        })
    }
}

/// An event queue as a driver has it.
pub struct EventQueue {
    pub area: Area,
    depth: u32,
    ctrl: u64,
    consumer: u32,
}

impl EventQueue {
    /// The next event: kind, number and code.
    pub fn next(&mut self) -> Option<(u32, u32, u32)> {
        let at = u64::from(self.consumer & (self.depth - 1)) * 16;
        let phase = u32::from(self.consumer & self.depth == 0);
        if self.area.load(at + 12) != phase {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        let event = (
            self.area.load(at),
            self.area.load(at + 4),
            self.area.load(at + 8),
        );
        Some(event)
    }

    /// Tells the device what was read.
    pub fn consumed(&self) {
        self.area.store(self.ctrl, self.consumer);
    }
}

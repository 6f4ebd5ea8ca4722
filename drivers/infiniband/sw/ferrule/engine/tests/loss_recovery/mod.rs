// SPDX-License-Identifier: GPL-2.0

//! Lost packets are sent again, and little else.

mod any_loss;
mod gaps;
mod probes;
mod reorder;

use crate::sim::*;

const PACKET: u32 = 1024;
const PACKETS: u32 = 30;
const SIZE: u32 = PACKET * PACKETS;

/// A connection, and the losses of its packets.
type Scene = scene::Scene<LossRecovery>;

enum LossRecovery {}

impl Scene {
    fn new(doomed: &[(usize, u64)]) -> Self {
        let mut scene = Self::with(SIZE as usize, |_| ());
        scene.memory[0].fill(3);
        scene.memory[1].fill(7);
        scene.link.network.doomed = doomed.iter().copied().collect();
        scene
    }

    fn write(&self, wr_id: u64, from: u32, length: u32) -> Wr {
        let sge = self.memory[0].sge(from.into(), length);
        Wr::write(wr_id, &[sge], self.memory[1].remote(from.into()))
    }

    /// Lets all happen; returns how many packets either side was sent.
    fn settle(&mut self) -> [u64; 2] {
        self.link.settle();
        assert_eq!(BUFFERED.get(), 0, "nothing is buffered when all has come");
        for world in &self.link.worlds {
            assert_eq!(world.engine.counters().unanswered, 0);
        }
        self.link.network.sent
    }

    fn is_copied(&self) -> bool {
        let [mine, theirs] = &self.memory;
        mine.bytes(0, SIZE as usize) == theirs.bytes(0, SIZE as usize)
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Packets that are missing, and whether the peer is to be told.

/// What is known of packets that did not come.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gap {
    /// The peer has been told, and sends them again.
    pub(crate) told: bool,
    /// The first of those behind them that has come since.
    beyond: Option<u32>,
}

impl Gap {
    /// Packet `number` has come, and one before it is missing. Answers whether the peer is to be told.
    ///
    /// It is told once (C9-112), since all that is on its way would say the same. But when the first packet
    /// behind the gap comes again, the peer has begun again, and what is missing was lost again. Without
    /// being told it would have to wait until its timer fires. No other packet is such a sign: that it comes
    /// again may be the network's doing, and a peer that is told in vain spends a retry. Where the first one
    /// is lost as well, the peer's probe or its timer finds the loss.
    pub(crate) fn is_news(&mut self, number: u32) -> bool {
        let is_news = !self.told || self.beyond == Some(number);
        self.told = true;
        self.beyond = self.beyond.or(Some(number));
        is_news
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The rules of a port, and where a frame goes by them.

use super::{
    fields::Fields,
    rule::{
        Rule,
        RuleType, //
    },
};

/// The rules that a port has at most. Each frame is compared with all of them.
pub const MAX_RULES: usize = 256;

/// A rule of a port.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The host's own name for it.
    pub id: u32,
    /// The rule.
    pub rule: Rule,
    /// The queue pair that gets the frames.
    pub qpn: u32,
    /// The index of the first rule of this queue pair.
    first: u8,
}

impl Entry {
    /// A rule for the frames of a queue pair.
    pub fn new(id: u32, rule: Rule, qpn: u32) -> Self {
        Self {
            id,
            rule,
            qpn,
            first: 0,
        }
    }

    /// The order in which rules are asked.
    fn order(&self) -> (Level, u16) {
        (Level::of(self.rule.kind), self.rule.priority)
    }
}

/// Rules that are asked together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Normal,
    Default,
    Sniffer,
}

impl Level {
    fn of(kind: RuleType) -> Self {
        match kind {
            RuleType::Normal => Level::Normal,
            RuleType::AllDefault | RuleType::MulticastDefault => Level::Default,
            RuleType::Sniffer => Level::Sniffer,
        }
    }
}

/// Where a frame comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It has come to the port.
    Wire,
    /// A raw packet queue pair of the port has sent it. Sniffers get it as it leaves.
    Own,
    /// It leaves the port: sniffers alone get it.
    Leaving,
}

/// Puts rules into the order that [`steer`] needs. There are [`MAX_RULES`] at most.
pub fn sort(entries: &mut [Entry]) {
    let mut end = 2;
    while let Some(sorted_but_last) = entries.get_mut(..end) {
        move_last(sorted_but_last);
        end = end.wrapping_add(1);
    }
    for index in 0..entries.len() {
        let Some(entry) = entries.get(index) else {
            break;
        };
        let first = entries.iter().position(|other| other.qpn == entry.qpn);
        let first = u8::try_from(first.unwrap_or(index)).unwrap_or(u8::MAX);
        if let Some(entry) = entries.get_mut(index) {
            entry.first = first;
        }
    }
}

/// Moves the last of sorted entries to its place among them.
fn move_last(entries: &mut [Entry]) {
    let mut end = entries.len();
    while let Some([.., before, last]) = entries.get_mut(..end) {
        if before.order() <= last.order() {
            break;
        }
        core::mem::swap(before, last);
        end = end.wrapping_sub(1);
    }
}

/// The queue pairs that get a frame, as a set of the rules that are their first ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Targets([u64; MAX_RULES / 64]);

impl Targets {
    fn add(&mut self, index: u8) {
        if let Some(word) = self.0.get_mut(usize::from(index / 64)) {
            *word |= 1u64.wrapping_shl(u32::from(index % 64));
        }
    }

    fn add_all(&mut self, others: &Targets) {
        for (word, other) in self.0.iter_mut().zip(others.0) {
            *word |= other;
        }
    }

    /// Whether nobody gets it.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The numbers of the queue pairs, each once.
    pub fn qpns<'a>(&'a self, entries: &'a [Entry]) -> impl Iterator<Item = u32> + 'a {
        let has = |index: usize| {
            let word = self.0.get(index / 64).copied().unwrap_or(0);
            word.wrapping_shr((index % 64) as u32) & 1 != 0
        };
        let indexed = entries.iter().enumerate();
        indexed
            .filter(move |(index, _)| has(*index))
            .map(|(_, entry)| entry.qpn)
    }
}

/// The queue pairs that get a frame by sorted rules.
///
/// Normal rules are asked by priority. All queue pairs of the first priority that has a rule for
/// the frame get it, each once, and those of later ones only if all these rules go on. If one of
/// them drops, none gets it, and later ones are not asked. A frame that no normal rule has ended
/// with is for default rules, by the same order. Sniffers get each frame.
pub fn steer(entries: &[Entry], fields: &Fields, from: Origin) -> Targets {
    let mut targets = Targets::default();
    let mut ended = from == Origin::Leaving;
    let mut level = None;
    // Of this level: whether it is asked, the queue pairs, and whether none of them gets the frame.
    let (mut is_asked, mut found, mut drops) = (false, Targets::default(), false);
    for entry in entries {
        let order = entry.order();
        if level != Some(order) {
            level = Some(order);
            if !drops {
                targets.add_all(&found);
            }
            (found, drops) = (Targets::default(), false);
            is_asked = match order.0 {
                Level::Normal | Level::Default => !ended,
                Level::Sniffer => from != Origin::Own,
            };
        }
        if is_asked && entry.rule.takes(fields) {
            found.add(entry.first);
            drops |= entry.rule.drops;
            ended |= !entry.rule.goes_on;
        }
    }
    if !drops {
        targets.add_all(&found);
    }
    targets
}

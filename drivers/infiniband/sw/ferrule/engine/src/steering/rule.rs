// SPDX-License-Identifier: GPL-2.0

//! The rules: which frames they are for.

use zerocopy::{
    Immutable,
    IntoBytes, //
};

use super::fields::{
    Ethernet,
    Fields,
    Ipv4,
    Ipv6,
    Network,
    Ports,
    Transport, //
};

/// The types of rules (`enum ib_flow_attr_type`), in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleType {
    /// The frames that its filters let pass.
    Normal,
    /// The frames that no normal rule has taken.
    AllDefault,
    /// Those of them that are to a group.
    MulticastDefault,
    /// All frames. Other queue pairs may get them, too.
    Sniffer,
}

/// The value of the bits that the mask has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Masked<T> {
    /// The value; bits that the mask does not have mean nothing.
    pub value: T,
    /// The bits that are compared.
    pub mask: T,
}

impl<T: Immutable + IntoBytes> Masked<T> {
    fn lets_pass(&self, fields: &T) -> bool {
        let expected = self.value.as_bytes().iter().zip(self.mask.as_bytes());
        fields
            .as_bytes()
            .iter()
            .zip(expected)
            .all(|(field, (value, mask))| (field ^ value) & mask == 0)
    }
}

/// The part of a rule that compares one header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filter {
    /// That of Ethernet.
    Ethernet(Masked<Ethernet>),
    /// That of IPv4: other frames do not pass.
    Ipv4(Masked<Ipv4>),
    /// That of IPv6: other frames do not pass.
    Ipv6(Masked<Ipv6>),
    /// That of TCP: other frames do not pass.
    Tcp(Masked<Ports>),
    /// That of UDP: other frames do not pass.
    Udp(Masked<Ports>),
}

impl Filter {
    /// The place of the header among the others. A rule has one filter for each at most.
    fn layer(&self) -> usize {
        match self {
            Filter::Ethernet(_) => 0,
            Filter::Ipv4(_) | Filter::Ipv6(_) => 1,
            Filter::Tcp(_) | Filter::Udp(_) => 2,
        }
    }

    fn lets_pass(&self, fields: &Fields) -> bool {
        match (self, &fields.network, &fields.transport) {
            (Filter::Ethernet(filter), ..) => {
                (filter.mask.vlan_tag == [0; 2] || fields.has_vlan)
                    && filter.lets_pass(&fields.ethernet)
            }
            (Filter::Ipv4(filter), Some(Network::V4(header)), _) => filter.lets_pass(header),
            (Filter::Ipv6(filter), Some(Network::V6(header)), _) => filter.lets_pass(header),
            (Filter::Tcp(filter), _, Some(Transport::Tcp(ports))) => filter.lets_pass(ports),
            (Filter::Udp(filter), _, Some(Transport::Udp(ports))) => filter.lets_pass(ports),
            _ => false,
        }
    }
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    pub(super) kind: RuleType,
    /// Rules with a lower number are asked first.
    pub(super) priority: u16,
    /// The frames are for rules of a higher number, too.
    pub(super) goes_on: bool,
    /// The frames are for nobody.
    pub(super) drops: bool,
    filters: [Option<Filter>; 3],
}

impl Rule {
    /// A rule without filters, for all frames of its kind. If it `goes_on`, frames that it takes
    /// are for rules of lower priority, too. If it `drops`, neither its queue pair gets them, nor
    /// one of a rule of its priority or a lower one.
    ///
    /// `None` if only normal rules can be so, and it is another one.
    pub fn new(kind: RuleType, priority: u16, goes_on: bool, drops: bool) -> Option<Self> {
        if kind != RuleType::Normal && (goes_on || drops) {
            return None;
        }
        Some(Self {
            kind,
            priority,
            goes_on,
            drops,
            filters: [None; 3],
        })
    }

    /// Adds a filter. Returns whether the rule may have it: it is a normal one, and has none for a
    /// header at this place.
    #[must_use]
    pub fn add(&mut self, filter: Filter) -> bool {
        match self.filters.get_mut(filter.layer()) {
            Some(place @ None) if self.kind == RuleType::Normal => {
                *place = Some(filter);
                true
            }
            _ => false,
        }
    }

    /// The one address that its frames are to, if there is such. Of others nobody knows beforehand
    /// where they go.
    pub fn destination(&self) -> Option<[u8; 6]> {
        match &self.filters {
            [Some(Filter::Ethernet(filter)), ..] if filter.mask.dst_mac == [0xff; 6] => {
                Some(filter.value.dst_mac)
            }
            _ => None,
        }
    }

    /// The type of the rule.
    pub fn kind(&self) -> RuleType {
        self.kind
    }

    pub(super) fn takes(&self, fields: &Fields) -> bool {
        (self.kind != RuleType::MulticastDefault || fields.is_multicast())
            && (self.filters.iter().flatten()).all(|filter| filter.lets_pass(fields))
    }
}

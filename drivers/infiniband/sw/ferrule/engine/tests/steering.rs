// SPDX-License-Identifier: GPL-2.0

//! Flow steering: the fields of frames, and where they go by rules.

use ferrule_engine::steering::{
    fields::{Ethernet, Fields, Ipv4, Ipv6, Network, Ports, Transport, HEADERS},
    rule::{Filter, Masked, Rule, RuleType},
    rule_table::{sort, steer, Entry, Origin, MAX_RULES},
};
use proptest::prelude::*;

use crate::sim::cases;

const DST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SRC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A frame of UDP over IPv4, with VLAN tags or without.
fn ipv4(tags: &[[u8; 4]]) -> Vec<u8> {
    let mut frame = [DST, SRC].concat();
    frame.extend(tags.concat());
    frame.extend([8, 0, 0x46, 0x1c, 0, 36, 0, 1, 0x40, 0, 63, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1]);
    frame.extend([4, 210, 22, 46, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

/// A frame of TCP over IPv6.
fn ipv6() -> Vec<u8> {
    let mut frame = [DST, SRC].concat();
    frame.extend([0x86, 0xdd, 0x6a, 0xb1, 0x23, 0x45, 0, 20, 6, 64]);
    frame.extend([1; 16]);
    frame.extend([2; 16]);
    frame.extend([4, 210, 22, 46]);
    frame.extend([0; 16]);
    frame
}

const PORTS: Ports = Ports {
    dst_port: [22, 46],
    src_port: [4, 210],
};

fn parse(frame: &[u8]) -> Fields {
    Fields::parse(frame, None).unwrap()
}

#[test]
fn the_fields_are_found() {
    let v4 = Ipv4 {
        src_ip: [10, 0, 0, 1],
        dst_ip: [10, 0, 0, 2],
        proto: 17,
        tos: 0x1c,
        ttl: 63,
        flags: 2,
    };
    let expected = Fields {
        ethernet: Ethernet {
            dst_mac: DST,
            src_mac: SRC,
            ether_type: [8, 0],
            vlan_tag: [0, 0],
        },
        has_vlan: false,
        network: Some(Network::V4(v4)),
        transport: Some(Transport::Udp(PORTS)),
    };
    assert_eq!(parse(&ipv4(&[])), expected);
    let v6 = Ipv6 {
        src_ip: [1; 16],
        dst_ip: [2; 16],
        flow_label: [0, 1, 0x23, 0x45],
        next_hdr: 6,
        traffic_class: 0xab,
        hop_limit: 64,
    };
    let fields = parse(&ipv6());
    assert_eq!(fields.network, Some(Network::V6(v6)));
    assert_eq!(fields.transport, Some(Transport::Tcp(PORTS)));
}

#[test]
fn the_first_vlan_tag_counts_and_the_type_behind_the_last() {
    let (outer, inner) = ([0x88, 0xa8, 0xa0, 7], [0x81, 0, 0, 9]);
    let of = |tags: &[[u8; 4]], beside| {
        let fields = Fields::parse(&ipv4(tags), beside).unwrap();
        assert_eq!(fields.ethernet.ether_type, [8, 0]);
        assert!(fields.has_vlan && fields.transport.is_some());
        fields.ethernet.vlan_tag
    };
    assert_eq!(of(&[inner], None), [0, 9]);
    assert_eq!(of(&[outer, inner], None), [0xa0, 7]);
    assert_eq!(of(&[], Some(5)), [0, 5]);
    assert_eq!(of(&[inner], Some(5)), [0, 5]);
    // A third one is not looked behind.
    let fields = parse(&ipv4(&[outer, inner, inner]));
    assert_eq!(fields.ethernet.ether_type, [0x81, 0]);
    assert_eq!(fields.network, None);
}

#[test]
fn fragments_have_no_ports() {
    for (bytes, has_ports, flags) in [
        ([0x20, 0], true, 4),
        ([0x20, 1], false, 4),
        ([1, 0], false, 0),
        ([0x60, 0], true, 6),
    ] {
        let mut frame = ipv4(&[]);
        frame[20..22].copy_from_slice(&bytes);
        let fields = parse(&frame);
        assert_eq!(fields.transport.is_some(), has_ports);
        let Some(Network::V4(header)) = fields.network else {
            panic!("no header of IPv4");
        };
        assert_eq!(header.flags, flags);
    }
}

#[test]
fn a_frame_that_ends_too_soon_has_fewer_fields() {
    let frame = ipv4(&[]);
    assert_eq!(Fields::parse(&frame[..13], None), None);
    assert_eq!(parse(&frame[..33]).network, None);
    let fields = parse(&frame[..41]);
    assert!(fields.network.is_some() && fields.transport.is_none());
    // A version that the type does not have, and a header that is too short.
    for version in [0x56, 0x66, 0x44] {
        let mut frame = ipv4(&[]);
        frame[14] = version;
        assert_eq!(parse(&frame).network, None);
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_bytes_are_parsed_and_the_rest_does_not_matter(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        tag in prop::option::of(any::<u16>()),
        kind in 0usize..4,
    ) {
        let mut bytes = bytes;
        let types: [[u8; 2]; 3] = [[8, 0], [0x86, 0xdd], [0x81, 0]];
        if let (Some(place), Some(value)) = (bytes.get_mut(12..14), types.get(kind)) {
            place.copy_from_slice(value);
        }
        let fields = Fields::parse(&bytes, tag);
        let first = &bytes[..bytes.len().min(HEADERS)];
        prop_assert_eq!(Fields::parse(first, tag), fields);
    }
}

fn ethernet(change: impl Fn(&mut Masked<Ethernet>)) -> Filter {
    let mut filter = Masked {
        value: Ethernet::default(),
        mask: Ethernet::default(),
    };
    change(&mut filter);
    Filter::Ethernet(filter)
}

fn to(dst_mac: [u8; 6]) -> Filter {
    ethernet(|filter| {
        filter.value.dst_mac = dst_mac;
        filter.mask.dst_mac = [0xff; 6];
    })
}

fn rule(priority: u16, filters: &[Filter]) -> Rule {
    let mut rule = Rule::new(RuleType::Normal, priority, false, false).unwrap();
    for filter in filters {
        assert!(rule.add(*filter));
    }
    rule
}

/// The queue pairs that get a frame from the wire, by rules that are named by their queue pairs.
fn targets_from(rules: &[(Rule, u32)], frame: &[u8], from: Origin) -> Vec<u32> {
    let mut entries: Vec<_> = rules
        .iter()
        .map(|(rule, qpn)| Entry::new(0, *rule, *qpn))
        .collect();
    sort(&mut entries);
    let targets = steer(&entries, &parse(frame), from);
    let mut qpns: Vec<_> = targets.qpns(&entries).collect();
    assert_eq!(qpns.is_empty(), targets.is_empty());
    qpns.sort_unstable();
    qpns
}

fn targets(rules: &[(Rule, u32)], frame: &[u8]) -> Vec<u32> {
    targets_from(rules, frame, Origin::Wire)
}

#[test]
fn filters_compare_the_bits_of_their_masks() {
    let passes =
        |filter: Filter, frame: &[u8]| !targets(&[(rule(0, &[filter]), 1)], frame).is_empty();
    let (v4, v6) = (ipv4(&[]), ipv6());
    assert!(passes(to(DST), &v4) && !passes(to(SRC), &v4));
    let ports = |src, mask| Masked {
        value: Ports {
            src_port: src,
            dst_port: [0; 2],
        },
        mask: Ports {
            src_port: mask,
            dst_port: [0; 2],
        },
    };
    assert!(passes(Filter::Udp(ports([4, 210], [0xff; 2])), &v4));
    assert!(!passes(Filter::Udp(ports([4, 211], [0xff; 2])), &v4));
    assert!(passes(Filter::Udp(ports([4, 211], [0xff, 0xfe])), &v4));
    assert!(!passes(Filter::Tcp(ports([4, 210], [0; 2])), &v4));
    assert!(passes(Filter::Tcp(ports([4, 210], [0xff; 2])), &v6));
    let v4_filter = |ttl, mask| {
        let of = |ttl| Ipv4 {
            ttl,
            ..Ipv4::default()
        };
        Filter::Ipv4(Masked {
            value: of(ttl),
            mask: of(mask),
        })
    };
    assert!(passes(v4_filter(63, 0xff), &v4) && !passes(v4_filter(64, 0xff), &v4));
    assert!(passes(v4_filter(64, 0), &v4) && !passes(v4_filter(64, 0), &v6));
    let v6_filter = |hop_limit| {
        let of = |hop_limit| Ipv6 {
            hop_limit,
            ..Ipv6::default()
        };
        Filter::Ipv6(Masked {
            value: of(hop_limit),
            mask: of(0xff),
        })
    };
    assert!(passes(v6_filter(64), &v6) && !passes(v6_filter(63), &v6));
    assert!(!passes(v6_filter(64), &v4));
    // A rule for a tag of zeroes is for frames with a tag.
    let vlan = |tag: u16| {
        ethernet(|filter| {
            filter.value.vlan_tag = tag.to_be_bytes();
            filter.mask.vlan_tag = [0x0f, 0xff];
        })
    };
    assert!(!passes(vlan(0), &v4));
    assert!(passes(vlan(9), &ipv4(&[[0x81, 0, 0xa0, 9]])));
    assert!(!passes(vlan(8), &ipv4(&[[0x81, 0, 0xa0, 9]])));
}

#[test]
fn each_filter_of_a_rule_has_to_let_a_frame_pass() {
    let any_udp = Filter::Udp(Masked {
        value: PORTS,
        mask: Ports::default(),
    });
    assert_eq!(
        targets(&[(rule(0, &[to(DST), any_udp]), 1)], &ipv4(&[])),
        [1]
    );
    assert_eq!(
        targets(&[(rule(0, &[to(SRC), any_udp]), 1)], &ipv4(&[])),
        []
    );
    assert_eq!(targets(&[(rule(0, &[]), 1)], &ipv6()), [1]);
}

#[test]
fn a_rule_has_one_filter_a_layer_and_only_a_normal_one_has_any() {
    let v4 = Masked {
        value: Ipv4::default(),
        mask: Ipv4::default(),
    };
    let v6 = Masked {
        value: Ipv6::default(),
        mask: Ipv6::default(),
    };
    let ports = Masked {
        value: PORTS,
        mask: PORTS,
    };
    let mut normal = Rule::new(RuleType::Normal, 0, false, false).unwrap();
    assert!(normal.add(Filter::Ipv4(v4)) && !normal.add(Filter::Ipv6(v6)));
    assert!(normal.add(to(DST)) && !normal.add(to(DST)));
    assert!(normal.add(Filter::Tcp(ports)) && !normal.add(Filter::Udp(ports)));
    assert_eq!(normal.destination(), Some(DST));
    for kind in [
        RuleType::AllDefault,
        RuleType::MulticastDefault,
        RuleType::Sniffer,
    ] {
        let mut other = Rule::new(kind, 0, false, false).unwrap();
        assert!(!other.add(to(DST)));
        assert_eq!(other.destination(), None);
        assert_eq!(Rule::new(kind, 0, true, false), None);
        assert_eq!(Rule::new(kind, 0, false, true), None);
    }
}

#[test]
fn a_lower_number_comes_first() {
    let frame = ipv4(&[]);
    let rules = [
        (rule(2, &[]), 2),
        (rule(1, &[to(DST)]), 1),
        (rule(3, &[]), 3),
    ];
    assert_eq!(targets(&rules, &frame), [1]);
    let rules = [
        (rule(2, &[]), 2),
        (rule(1, &[to(SRC)]), 1),
        (rule(3, &[]), 3),
    ];
    assert_eq!(targets(&rules, &frame), [2]);
    // Of one number all are asked, and a queue pair gets a frame once.
    let rules = [
        (rule(1, &[]), 7),
        (rule(1, &[to(DST)]), 8),
        (rule(1, &[to(DST)]), 7),
    ];
    assert_eq!(targets(&rules, &frame), [7, 8]);
}

#[test]
fn a_rule_that_goes_on_leaves_the_frame_to_others() {
    let going = |priority| Rule::new(RuleType::Normal, priority, true, false).unwrap();
    let frame = ipv4(&[]);
    let rules = [
        (going(1), 1),
        (going(2), 2),
        (rule(3, &[]), 3),
        (rule(4, &[]), 4),
    ];
    assert_eq!(targets(&rules, &frame), [1, 2, 3]);
    let default = Rule::new(RuleType::AllDefault, 0, false, false).unwrap();
    assert_eq!(targets(&[(going(1), 1), (default, 2)], &frame), [1, 2]);
}

#[test]
fn a_rule_that_drops_keeps_a_frame_from_those_behind_it() {
    let drops = |priority| Rule::new(RuleType::Normal, priority, false, true).unwrap();
    let going = Rule::new(RuleType::Normal, 0, true, false).unwrap();
    let default = Rule::new(RuleType::AllDefault, 0, false, false).unwrap();
    let sniffer = Rule::new(RuleType::Sniffer, 0, false, false).unwrap();
    let rules = [
        (drops(1), 1),
        (rule(1, &[]), 2),
        (rule(2, &[]), 3),
        (going, 4),
        (default, 5),
        (sniffer, 6),
    ];
    assert_eq!(targets(&rules, &ipv4(&[])), [4, 6]);
}

#[test]
fn default_rules_get_the_rest() {
    let of = |kind| Rule::new(kind, 0, false, false).unwrap();
    let rules = [
        (of(RuleType::AllDefault), 1),
        (of(RuleType::MulticastDefault), 2),
        (rule(9, &[to(DST)]), 3),
    ];
    assert_eq!(targets(&rules, &ipv4(&[])), [3]);
    let mut frame = ipv4(&[]);
    frame[5] = 9;
    assert_eq!(targets(&rules, &frame), [1]);
    frame[0] = 3;
    assert_eq!(targets(&rules, &frame), [1, 2]);
}

#[test]
fn sniffers_get_each_frame_once() {
    let sniffer = Rule::new(RuleType::Sniffer, 0, false, false).unwrap();
    let rules = [(sniffer, 1), (rule(0, &[]), 2), (sniffer, 2)];
    let frame = ipv4(&[]);
    assert_eq!(targets(&rules, &frame), [1, 2]);
    assert_eq!(targets_from(&rules, &frame, Origin::Leaving), [1, 2]);
    assert_eq!(targets_from(&rules, &frame, Origin::Own), [2]);
    assert_eq!(targets_from(&rules[1..2], &frame, Origin::Leaving), []);
}

#[test]
fn as_many_rules_as_there_can_be() {
    let rules: Vec<_> = (0..MAX_RULES as u32)
        .map(|qpn| (rule(0, &[]), qpn))
        .collect();
    let all: Vec<_> = (0..MAX_RULES as u32).collect();
    assert_eq!(targets(&rules, &ipv4(&[])), all);
    assert_eq!(targets(&[], &ipv4(&[])), []);
}

// SPDX-License-Identifier: GPL-2.0

//! Transitions and their attributes, and the answers of queries.

use ferrule_engine::{
    Access, Attributes, Error, Modify, Mtu, PathKind, QpType, State, Vport, MAX_RD_ATOMIC,
};
use proptest::prelude::*;

use crate::sim::*;

/// The attributes of a change, named as in the verbs.
const NAMES: [&str; 19] = [
    "CUR_STATE",
    "SQD_NOTIFY",
    "ACCESS",
    "PKEY",
    "PORT",
    "QKEY",
    "AV",
    "MTU",
    "TIMEOUT",
    "RETRY",
    "RNR_RETRY",
    "RQ_PSN",
    "RD_ATOMIC",
    "DEST_RD",
    "MIN_RNR",
    "SQ_PSN",
    "DEST_QPN",
    "ALT_PATH",
    "MIGRATION",
];

/// Table 92 of IBA volume 1 as one would write it down: service, from, to, required | optional.
const TABLE: &str = "
RC RESET INIT PKEY PORT ACCESS |
UC RESET INIT PKEY PORT ACCESS |
UD RESET INIT PKEY PORT QKEY |
RC INIT INIT | PKEY PORT ACCESS
UC INIT INIT | PKEY PORT ACCESS
UD INIT INIT | PKEY PORT QKEY
RC INIT RTR AV MTU DEST_QPN RQ_PSN DEST_RD MIN_RNR | ALT_PATH ACCESS PKEY
UC INIT RTR AV MTU DEST_QPN RQ_PSN | ALT_PATH ACCESS PKEY
UD INIT RTR | PKEY QKEY
RC RTR RTS TIMEOUT RETRY RNR_RETRY SQ_PSN RD_ATOMIC | CUR_STATE ALT_PATH ACCESS MIN_RNR MIGRATION
UC RTR RTS SQ_PSN | CUR_STATE ALT_PATH ACCESS MIGRATION
UD RTR RTS SQ_PSN | CUR_STATE QKEY
RC RTS RTS | CUR_STATE ACCESS ALT_PATH MIGRATION MIN_RNR
UC RTS RTS | CUR_STATE ACCESS ALT_PATH MIGRATION
UD RTS RTS | CUR_STATE QKEY
RC RTS SQD | SQD_NOTIFY
UC RTS SQD | SQD_NOTIFY
UD RTS SQD | SQD_NOTIFY
RC SQD RTS | CUR_STATE ALT_PATH ACCESS MIN_RNR MIGRATION
UC SQD RTS | CUR_STATE ALT_PATH ACCESS MIGRATION
UD SQD RTS | CUR_STATE QKEY
RC SQD SQD | PORT AV TIMEOUT RETRY RNR_RETRY RD_ATOMIC DEST_RD ALT_PATH ACCESS PKEY MIN_RNR MIGRATION
UC SQD SQD | PORT AV ALT_PATH ACCESS PKEY MIGRATION
UD SQD SQD | PKEY QKEY
UC SQE RTS | CUR_STATE ACCESS
RAW RESET INIT PORT |
RAW INIT INIT |
RAW INIT RTR |
RAW RTR RTS |
RAW RTS RTS |
RAW RTS SQD |
RAW SQD RTS |
RAW SQD SQD |
RAW SQE RTS |
UD SQE RTS | CUR_STATE QKEY
";

const STATES: [(&str, State); 7] = [
    ("RESET", State::Reset),
    ("INIT", State::Init),
    ("RTR", State::Rtr),
    ("RTS", State::Rts),
    ("SQD", State::Sqd),
    ("SQE", State::Sqe),
    ("ERR", State::Err),
];

fn named(state: State) -> &'static str {
    STATES.iter().find(|(_, s)| *s == state).unwrap().0
}

/// Whether the table has the transition and allows just these attributes for it.
fn table_allows(service: &str, from: State, to: State, given: &[&str]) -> bool {
    match to {
        State::Reset => return given.is_empty(),
        State::Err => return from != State::Reset && given.is_empty(),
        _ => (),
    }
    for line in TABLE.lines() {
        let Some((left, optional)) = line.split_once('|') else {
            continue;
        };
        let mut words = left.split_whitespace();
        let head = [words.next(), words.next(), words.next()];
        if head != [Some(service), Some(named(from)), Some(named(to))] {
            continue;
        }
        let required: Vec<_> = words.collect();
        return required.iter().all(|name| given.contains(name))
            && given.iter().all(|name| {
                required.contains(name) || optional.split_whitespace().any(|other| other == *name)
            });
    }
    false
}

/// A change with valid values for the named attributes.
fn change(state: Option<State>, current: State, given: &[&str]) -> Modify {
    let has = |name| given.contains(&name);
    Modify {
        state,
        cur_state: has("CUR_STATE").then_some(current),
        en_sqd_async_notify: has("SQD_NOTIFY").then_some(true),
        access: has("ACCESS").then_some(Access::REMOTE_WRITE),
        pkey_index: has("PKEY").then_some(0),
        port: has("PORT").then_some(1),
        qkey: has("QKEY").then_some(0x1111),
        path: has("AV").then_some(path(PathKind::Local(Vport::default()))),
        path_mtu: has("MTU").then_some(Mtu::Mtu2048),
        timeout: has("TIMEOUT").then_some(9),
        retry_cnt: has("RETRY").then_some(5),
        rnr_retry: has("RNR_RETRY").then_some(4),
        rq_psn: has("RQ_PSN").then_some(100),
        max_rd_atomic: has("RD_ATOMIC").then_some(3),
        max_dest_rd_atomic: has("DEST_RD").then_some(2),
        min_rnr_timer: has("MIN_RNR").then_some(7),
        sq_psn: has("SQ_PSN").then_some(200),
        dest_qpn: has("DEST_QPN").then_some(300),
        alt_path: has("ALT_PATH"),
        path_mig_state: has("MIGRATION"),
        cap: false,
        rate_limit: false,
    }
}

fn required(service: &str, from: &str, to: &str) -> Vec<&'static str> {
    let prefix = format!("{service} {from} {to} ");
    let line = TABLE
        .lines()
        .find_map(|line| line.strip_prefix(prefix.as_str()));
    line.unwrap()
        .split('|')
        .next()
        .unwrap()
        .split_whitespace()
        .collect()
}

/// Makes a queue pair and leads it to `state`, if its service has that state.
fn lead(w: &mut World, service: &str, state: State) -> Option<TestQp> {
    let qp_type = match service {
        "RC" => QpType::Rc,
        "UC" => QpType::Uc,
        "RAW" => QpType::RawPacket,
        _ => QpType::Ud,
    };
    let cq = w.cq(16);
    let spec = QpSpec {
        qp_type,
        ..QpSpec::default()
    };
    let qp = w.qp_with(&spec, &cq, &cq);
    let steps = match state {
        State::Reset => 0,
        State::Init | State::Err => 1,
        State::Rtr => 2,
        State::Rts | State::Sqd => 3,
        State::Sqe => return None,
    };
    for (from, to) in [("RESET", "INIT"), ("INIT", "RTR"), ("RTR", "RTS")]
        .iter()
        .take(steps)
    {
        let to_state = STATES.iter().find(|(name, _)| name == to).unwrap().1;
        let change = change(Some(to_state), State::Reset, &required(service, from, to));
        w.modify(&qp, &change).unwrap();
    }
    if matches!(state, State::Sqd | State::Err) {
        w.to(&qp, state);
    }
    w.state(&qp, state);
    Some(qp)
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn transitions_are_those_of_the_table(
        service in prop::sample::select(vec!["RC", "UC", "UD", "RAW"]),
        from in 0usize..7,
        to in prop::option::of(0usize..7),
        // Mostly what is required, with a few attributes more or less.
        flips in prop::collection::vec(0..NAMES.len(), 0..3),
        follow in any::<bool>(),
        wild in prop::collection::vec(any::<bool>(), NAMES.len()),
        tame in 0..4,
    ) {
        let mut w = World::new();
        let from = STATES[from].1;
        let Some(qp) = lead(&mut w, service, from) else { return Ok(()) };
        let to = to.map(|to| STATES[to].1);
        let target = to.unwrap_or(from);
        let mut set = vec![false; NAMES.len()];
        if tame == 0 {
            set = wild;
        } else if follow && TABLE.contains(&format!("{service} {} {} ", named(from), named(target))) {
            for name in required(service, named(from), named(target)) {
                set[NAMES.iter().position(|n| *n == name).unwrap()] = true;
            }
        }
        for flip in flips {
            set[flip] = !set[flip];
        }
        let given: Vec<&str> = NAMES.iter().zip(&set).filter(|(_, s)| **s).map(|(n, _)| *n).collect();
        let before = w.query(&qp);
        let result = w.modify(&qp, &change(to, from, &given));
        // A state that cannot be believed in makes the change invalid.
        let tellable = matches!(from, State::Rtr | State::Rts | State::Sqd | State::Sqe);
        let valid = table_allows(service, from, target, &given)
            && (tellable || !given.contains(&"CUR_STATE"));
        let migrates = given.contains(&"ALT_PATH") || given.contains(&"MIGRATION");
        let expected = match (valid, migrates) {
            (false, _) => Err(Error::Invalid),
            (true, true) => Err(Error::NotSupported),
            (true, false) => Ok(()),
        };
        prop_assert_eq!(result, expected);
        let after = w.query(&qp);
        if result.is_err() {
            prop_assert_eq!(after, before);
        } else {
            prop_assert_eq!(after.state, target);
        }
    }
}

/// Each row of the table as it stands: its required attributes, and one more or less.
#[test]
fn each_attribute_is_where_the_table_has_it() {
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let [service, from, to] = [(); 3].map(|()| words.next().unwrap());
        let state = |name| STATES.iter().find(|(state, _)| *state == name).unwrap().1;
        let (from, to) = (state(from), state(to));
        for name in NAMES {
            let mut w = World::new();
            let Some(qp) = lead(&mut w, service, from) else {
                continue;
            };
            let mut given = required(service, named(from), named(to));
            match given.iter().position(|other| *other == name) {
                Some(place) => drop(given.remove(place)),
                None => given.push(name),
            }
            let is_valid = table_allows(service, from, to, &given);
            let migrates = matches!(name, "ALT_PATH" | "MIGRATION");
            let expected = match (is_valid, migrates) {
                (false, _) => Err(Error::Invalid),
                (true, true) => Err(Error::NotSupported),
                (true, false) => Ok(()),
            };
            let result = w.modify(&qp, &change(Some(to), from, &given));
            assert_eq!(result, expected, "{line}: {name}");
        }
    }
}

#[test]
fn query_answers_what_was_set() {
    let mut w = World::new();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    assert_eq!(w.query(&qp).attr, Attributes::RESET);
    w.modify(&qp, &init()).unwrap();
    w.modify(&qp, &rtr(0x345)).unwrap();
    w.modify(&qp, &rts()).unwrap();
    let info = w.query(&qp);
    let expected = Attributes {
        en_sqd_async_notify: false,
        access: ALL,
        pkey_index: 0,
        port: 1,
        qkey: 0,
        path: Some(path(PathKind::Local(Vport::default()))),
        path_mtu: Mtu::Mtu1024,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        rq_psn: SQ_PSN,
        sq_psn: SQ_PSN,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        dest_qpn: 0x345,
    };
    assert_eq!(info.attr, expected);
    assert_eq!(info.cap.max_send_wr, 16);
    assert_eq!((info.qp_type, info.sq_sig_all), (QpType::Rc, false));
    w.to(&qp, State::Reset);
    assert_eq!(w.query(&qp).attr, Attributes::RESET);
}

#[test]
fn values_out_of_range_are_invalid() {
    let mut w = World::new();
    let cq = w.cq(16);
    let qp = w.qp(&cq, &cq);
    let invalid = |w: &mut World, modify: Modify| {
        let before = w.query(&qp);
        assert_eq!(w.modify(&qp, &modify), Err(Error::Invalid));
        assert_eq!(w.query(&qp), before);
    };
    invalid(
        &mut w,
        Modify {
            port: Some(2),
            ..init()
        },
    );
    invalid(
        &mut w,
        Modify {
            port: Some(0),
            ..init()
        },
    );
    invalid(
        &mut w,
        Modify {
            pkey_index: Some(1),
            ..init()
        },
    );
    invalid(
        &mut w,
        Modify {
            access: Some(Access(1 << 10)),
            ..init()
        },
    );
    w.modify(&qp, &init()).unwrap();
    invalid(
        &mut w,
        Modify {
            rq_psn: Some(1 << 24),
            ..rtr(1)
        },
    );
    invalid(&mut w, rtr(1 << 24));
    invalid(
        &mut w,
        Modify {
            min_rnr_timer: Some(32),
            ..rtr(1)
        },
    );
    invalid(
        &mut w,
        Modify {
            max_dest_rd_atomic: Some(MAX_RD_ATOMIC + 1),
            ..rtr(1)
        },
    );
    w.modify(&qp, &rtr(1)).unwrap();
    invalid(
        &mut w,
        Modify {
            sq_psn: Some(1 << 24),
            ..rts()
        },
    );
    invalid(
        &mut w,
        Modify {
            timeout: Some(32),
            ..rts()
        },
    );
    invalid(
        &mut w,
        Modify {
            retry_cnt: Some(8),
            ..rts()
        },
    );
    invalid(
        &mut w,
        Modify {
            rnr_retry: Some(8),
            ..rts()
        },
    );
    invalid(
        &mut w,
        Modify {
            max_rd_atomic: Some(MAX_RD_ATOMIC + 1),
            ..rts()
        },
    );
    // A state that it is not in.
    invalid(
        &mut w,
        Modify {
            cur_state: Some(State::Rts),
            ..rts()
        },
    );
    w.modify(
        &qp,
        &Modify {
            cur_state: Some(State::Rtr),
            ..rts()
        },
    )
    .unwrap();
    // Queues are not resized, and only raw packets have a rate: no transition takes these.
    for modify in [
        Modify {
            cap: true,
            ..Modify::default()
        },
        Modify {
            rate_limit: true,
            ..Modify::default()
        },
    ] {
        assert_eq!(w.modify(&qp, &modify), Err(Error::Invalid));
    }
    let not_supported = [
        Modify {
            path_mig_state: true,
            ..Modify::default()
        },
        Modify {
            alt_path: true,
            ..Modify::default()
        },
    ];
    for modify in not_supported {
        assert_eq!(w.modify(&qp, &modify), Err(Error::NotSupported));
    }
    assert_eq!(
        w.engine.modify_qp(
            &mut w.host,
            qp.id.number ^ 0x1_0000,
            &Modify::default(),
            &mut None
        ),
        Err(Error::NotFound)
    );
}

// SPDX-License-Identifier: GPL-2.0

//! Copy jobs of unreliable connections: RDMA WRITEs that arrive, and those that the peer drops.

use super::*;

fn pair(w: &mut World) -> Pair {
    let ends = [(); 2].map(|()| {
        let cq = w.cq(64);
        let spec = QpSpec {
            qp_type: QpType::Uc,
            ..QpSpec::default()
        };
        End {
            qp: w.qp_with(&spec, &cq, &cq),
            cq,
        }
    });
    let [a, b] = ends;
    w.connect_uc(&a.qp, &b.qp);
    w.connect_uc(&b.qp, &a.qp);
    Pair::new(w, (a, b), 8 * LONG)
}

impl Pair {
    fn write_with_key(&self, wr_id: u64, key: u32) {
        let (address, _) = self.theirs.remote(0);
        let wr = Wr::write(wr_id, &[self.mine.sge(0, LONG)], (address, key));
        self.a.qp.post_send(&wr);
    }

    #[track_caller]
    fn expect_bytes(&self, w: &World, length: u32, arrived: bool) {
        let [from, to] = [&self.mine, &self.theirs].map(|mr| mr.bytes(0, length as usize));
        assert_eq!(from == to, arrived);
        w.state(&self.a.qp, State::Rts);
    }
}

#[test]
fn writes_share_a_job() {
    let mut w = world();
    let p = pair(&mut w);
    for wr_id in 1..=3 {
        p.write(wr_id, LONG);
    }
    let job = only_job(&mut w);
    assert_eq!(job.bytes(), u64::from(3 * LONG));
    p.a.cq.expect_none();
    assert_eq!(w.engine.remove_mr(p.theirs.key).err(), Some(Error::InUse));
    assert!(w.carry(job));
    for wr_id in 1..=3 {
        p.a.cq.expect(wr_id, Status::Success);
    }
    p.expect_bytes(&w, LONG, true);
    expect_jobs(&w, 1);
}

#[test]
fn a_long_write_has_several_jobs() {
    let mut w = world();
    let p = pair(&mut w);
    p.write(1, 8 * LONG);
    for _ in 0..2 {
        p.a.cq.expect_none();
        let job = only_job(&mut w);
        assert_eq!(job.bytes(), u64::from(4 * LONG));
        w.carry(job);
    }
    p.a.cq.expect(1, Status::Success);
    p.expect_bytes(&w, 8 * LONG, true);
}

#[test]
fn a_write_that_is_dropped_is_not_copied() {
    let mut w = world();
    let p = pair(&mut w);
    p.write_with_key(1, !p.theirs.key);
    p.write(2, LONG);
    let job = only_job(&mut w);
    assert_eq!(job.bytes(), 0);
    w.carry(job);
    p.a.cq.expect(1, Status::Success);
    p.expect_bytes(&w, LONG, false);
    let job = only_job(&mut w);
    assert_eq!(job.bytes(), u64::from(LONG));
    w.carry(job);
    p.a.cq.expect(2, Status::Success);
    p.expect_bytes(&w, LONG, true);
    assert_eq!(w.engine.counters().dropped, 1);
}

#[test]
fn writes_to_a_peer_that_is_not_ready_are_dropped() {
    let mut w = world();
    let p = pair(&mut w);
    w.to(&p.b.qp, State::Err);
    for wr_id in 1..=2 {
        p.write(wr_id, 8 * LONG);
    }
    let mut jobs = Vec::new();
    loop {
        w.run_to_jobs(&mut jobs);
        let Some(job) = jobs.pop() else {
            break;
        };
        assert_eq!(job.bytes(), 0);
        w.carry(job);
    }
    for wr_id in 1..=2 {
        p.a.cq.expect(wr_id, Status::Success);
    }
    p.expect_bytes(&w, 8 * LONG, false);
    assert_eq!(w.engine.counters().dropped, 2);
}

#[test]
fn a_fault_of_the_requester_ends_in_error() {
    let mut w = world();
    let p = pair(&mut w);
    let wr = Wr::write(1, &[(0, LONG, !p.mine.key)], p.theirs.remote(0));
    p.a.qp.post_send(&wr);
    w.run();
    p.a.cq.expect(1, Status::LocalProtection);
    w.state(&p.a.qp, State::Sqe);
    expect_jobs(&w, 0);
}

#[test]
fn other_operations_are_copied_at_once() {
    let mut w = world();
    let p = pair(&mut w);
    let sges = [p.mine.sge(0, LONG)];
    let with_imm =
        Wr::write(2, &sges, p.theirs.remote(0)).with_opcode(abi::wr_opcode::RDMA_WRITE_WITH_IMM);
    for (wr_id, wr) in [(1, Wr::send(1, &sges)), (2, with_imm)] {
        p.b.qp.post_recv(wr_id, &[p.theirs.sge(0, LONG)]);
        p.a.qp.post_send(&wr);
        w.run();
        p.a.cq.expect(wr_id, Status::Success);
        p.b.cq.expect(wr_id, Status::Success);
    }
    p.expect_bytes(&w, LONG, true);
    expect_jobs(&w, 0);
}

// SPDX-License-Identifier: GPL-2.0

//! The engine's tests: one program, since one for each file would take as long again to link.

mod abi;
mod answers;
mod asks;
mod atomic;
mod atomic_write;
mod bitmap_scan;
mod budget;
mod congestion;
mod corpus;
mod counted;
mod cq;
mod doorbell;
mod fast;
mod floors;
mod flush;
mod frame;
mod fuzz;
mod golden;
mod goodput;
mod key;
mod lossy;
mod packet;
mod paging;
mod provider;
mod rc;
mod reach;
mod read;
mod repair;
mod reset;
mod rnr;
mod rxe;
mod sim;
mod srq;
mod state;
mod steering;
mod trace;
mod traffic;
mod uc;
mod ud;
mod vport;
mod window;
mod wire;
mod write_space;
mod xrc;

// SPDX-License-Identifier: GPL-2.0

//! Flow steering: rules by which raw packet queue pairs get frames of the port.

use ferrule_engine::steering::rule::{
    Filter,
    Masked,
    Rule,
    RuleType, //
};
use kernel::prelude::*;
use kernel_ext::error::code::EOPNOTSUPP;
use rdma::{
    flow::{
        self,
        Spec,
        SpecType,
        Type, //
    },
    qp, //
};
use zerocopy::FromBytes;

use crate::{
    backend::Backend,
    verbs::Ferrule, //
};

/// A rule. Dropping it takes it away.
pub(crate) struct Flow<B: Backend> {
    _flow: B::Flow,
}

fn masked<T: FromBytes>(spec: &Spec<'_>) -> Result<Masked<T>> {
    Ok(Masked {
        value: T::read_from_bytes(spec.value).map_err(|_| EINVAL)?,
        mask: T::read_from_bytes(spec.mask).map_err(|_| EINVAL)?,
    })
}

/// The filter of a specification.
fn filter(spec: &Spec<'_>) -> Result<Filter> {
    Ok(match spec.spec_type {
        SpecType::Ethernet => Filter::Ethernet(masked(spec)?),
        SpecType::Ipv4 => Filter::Ipv4(masked(spec)?),
        SpecType::Ipv6 => Filter::Ipv6(masked(spec)?),
        SpecType::Tcp => Filter::Tcp(masked(spec)?),
        SpecType::Udp => Filter::Udp(masked(spec)?),
        SpecType::Drop => return Err(EINVAL),
        SpecType::Other => return Err(EOPNOTSUPP),
    })
}

/// The rule that a program asks for.
///
/// # Errors
///
/// `EINVAL` for two specifications of one layer or two actions, and for those of a rule that has
/// none; `EOPNOTSUPP` for tunnels, for actions but the drop, and for frames that are sent.
fn rule(attr: &flow::Attr<'_>) -> Result<Rule> {
    if attr.egress {
        return Err(EOPNOTSUPP);
    }
    let kind = match attr.flow_type {
        Type::Normal => RuleType::Normal,
        Type::AllDefault => RuleType::AllDefault,
        Type::MulticastDefault => RuleType::MulticastDefault,
        Type::Sniffer => RuleType::Sniffer,
    };
    let is_drop = |spec: &Spec<'_>| spec.spec_type == SpecType::Drop;
    let drops = attr.specs().filter(is_drop).count();
    // A frame that is dropped is for nobody else.
    if drops > 1 || drops == 1 && attr.dont_trap {
        return Err(EINVAL);
    }
    let mut rule = Rule::new(kind, attr.priority, attr.dont_trap, drops != 0).ok_or(EINVAL)?;
    for spec in attr.specs().filter(|spec| !is_drop(spec)) {
        if !rule.add(filter(&spec)?) {
            return Err(EINVAL);
        }
    }
    Ok(rule)
}

impl<B: Backend> flow::Operations for Flow<B> {
    type Driver = Ferrule<B>;

    const SUPPORTED: bool = B::HAS_FRAMES;

    fn create(qp: &rdma::Qp<Ferrule<B>>, attr: &flow::Attr<'_>) -> Result<Self> {
        // Datagrams come by their queue pair number.
        if qp.qp_type() != qp::Type::RawPacket {
            return Err(EINVAL);
        }
        Ok(Flow {
            _flow: qp.device().steer(rule(attr)?, qp.qpn())?,
        })
    }
}

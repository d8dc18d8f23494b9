//! Leads what goes to other networks to the server: TCP to one port of the loopback, and DNS, wherever it goes, to another.
//!
//! The kernel translates addresses (nf_tables), so programs and the server have ordinary TCP, and who accepts can ask
//! for the destination that was meant. Everything else ends at the loopback, where nothing takes it.

use std::net::Ipv6Addr;

use rustix::io::Result;
use rustix::net::netlink::NETFILTER;

use super::netlink::{Attributes, Requests};

const TABLE: &str = "exec-server";
const CHAIN: &str = "output";
const DNS: u16 = 53;

// Kinds of messages. Those of nf_tables have its number in the upper half.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = NFTABLES << 8;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const NEW_RULE: u16 = NFTABLES << 8 | 6;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const INET: u8 = 1;
const LOCAL_OUT: u32 = 3;
/// Where destinations are translated.
const DESTINATION_NAT: i32 = -100;

const VERDICT_REGISTER: u32 = 0;
const REGISTER: u32 = 1;
const NFPROTO: u32 = 15;
const L4PROTO: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const EQUAL: u32 = 0;
const ACCEPT: u32 = 1;

const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Redirects from now on. Needs the capability to administer this network.
pub(super) fn install(flows: u16, dns: u16) -> Result<()> {
    let loopback = Ipv6Addr::LOCALHOST.octets();
    let rules = [
        [meta(L4PROTO), equals(&[UDP]), destination_port(), equals(&DNS.to_be_bytes())]
            .into_iter()
            .chain(redirect(dns))
            .collect::<Vec<_>>(),
        [meta(L4PROTO), equals(&[TCP]), destination_port(), equals(&DNS.to_be_bytes())]
            .into_iter()
            .chain(redirect(dns))
            .collect(),
        vec![meta(NFPROTO), equals(&[IPV4]), payload(NETWORK_HEADER, 16, 1), equals(&[127]), accept()],
        vec![meta(NFPROTO), equals(&[IPV6]), payload(NETWORK_HEADER, 24, 16), equals(&loopback), accept()],
        [meta(L4PROTO), equals(&[TCP])].into_iter().chain(redirect(flows)).collect(),
    ];
    let mut requests = Requests::default();
    requests.add_unanswered(BATCH_BEGIN, &fixed(0, NFTABLES))?;
    requests.add(NEW_TABLE, CREATE, &Attributes::default().with_text(1, TABLE).behind(&fixed(INET, 0)))?;
    requests.add(NEW_CHAIN, CREATE, &chain().behind(&fixed(INET, 0)))?;
    for rule in rules {
        requests.add(NEW_RULE, CREATE | APPEND, &of_expressions(&rule).behind(&fixed(INET, 0)))?;
    }
    requests.add_unanswered(BATCH_END, &fixed(0, NFTABLES))?;
    requests.send(Some(NETFILTER))
}

/// What every message begins with: a family, a version and a number.
fn fixed(family: u8, number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [family, 0, high, low]
}

fn chain() -> Attributes {
    let hook =
        Attributes::default().with_number(1, LOCAL_OUT).with_number(2, DESTINATION_NAT.cast_unsigned());
    Attributes::default().with_text(1, TABLE).with_text(3, CHAIN).with_nested(4, &hook).with_text(7, "nat")
}

fn of_expressions(expressions: &[Attributes]) -> Attributes {
    let list = expressions.iter().fold(Attributes::default(), |list, one| list.with_nested(1, one));
    Attributes::default().with_text(1, TABLE).with_text(2, CHAIN).with_nested(4, &list)
}

fn expression(name: &str, data: &Attributes) -> Attributes {
    Attributes::default().with_text(1, name).with_nested(2, data)
}

/// Loads something that the kernel knows of a packet.
fn meta(key: u32) -> Attributes {
    expression("meta", &Attributes::default().with_number(1, REGISTER).with_number(2, key))
}

/// Loads a part of a packet.
fn payload(base: u32, offset: u32, length: u32) -> Attributes {
    let data = Attributes::default().with_number(1, REGISTER).with_number(2, base);
    expression("payload", &data.with_number(3, offset).with_number(4, length))
}

fn destination_port() -> Attributes {
    payload(TRANSPORT_HEADER, 2, 2)
}

/// Goes on with the rule if what was loaded is this.
fn equals(value: &[u8]) -> Attributes {
    let data = Attributes::default().with_number(1, REGISTER).with_number(2, EQUAL);
    expression("cmp", &data.with_nested(3, &Attributes::default().with(1, value)))
}

/// Leaves the packet as it is.
fn accept() -> Attributes {
    let verdict = Attributes::default().with_number(1, ACCEPT);
    let value = Attributes::default().with_nested(2, &verdict);
    expression("immediate", &Attributes::default().with_number(1, VERDICT_REGISTER).with_nested(2, &value))
}

/// Leads the packet to a port of the loopback.
fn redirect(port: u16) -> [Attributes; 2] {
    let value = Attributes::default().with(1, &port.to_be_bytes());
    let loads = Attributes::default().with_number(1, REGISTER).with_nested(2, &value);
    [expression("immediate", &loads), expression("redir", &Attributes::default().with_number(1, REGISTER))]
}

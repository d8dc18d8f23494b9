//! The interface and the routes of this network namespace (`rtnetlink(7)`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Result;

use super::netlink::{Attributes, Requests};

/// Every network namespace has it under this number.
const LOOPBACK: u32 = 1;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;
const CREATE: u16 = 0x400;
const UP: u32 = 1;

const MAIN_TABLE: u8 = 254;
const STATIC: u8 = 4;
const UNICAST: u8 = 1;
/// What needs no further station.
const LINK_SCOPE: u8 = 253;
const UNIVERSE: u8 = 0;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;

/// Brings the loopback up, with the addresses that it always has.
pub(super) fn loopback_up() -> Result<()> {
    let mut body = vec![0; 4];
    body.extend(LOOPBACK.to_ne_bytes());
    // The flags, and which of them are meant.
    body.extend(UP.to_ne_bytes());
    body.extend(UP.to_ne_bytes());
    change(RTM_NEWLINK, 0, &body)
}

/// Leads to the loopback whatever has no other route, so that there is something to redirect.
pub(super) fn everything_to_the_loopback(has_ipv6: bool) -> Result<()> {
    default_route(Ipv4Addr::LOCALHOST.into())?;
    if has_ipv6 { default_route(Ipv6Addr::LOCALHOST.into()) } else { Ok(()) }
}

/// `source` is whose packets they are.
fn default_route(source: IpAddr) -> Result<()> {
    let (family, scope, source) = match source {
        IpAddr::V4(ip) => (libc::AF_INET, LINK_SCOPE, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, UNIVERSE, ip.octets().to_vec()),
    };
    // The lengths of destination and source, the kind of service; flags.
    let [family, ..] = family.to_le_bytes();
    let fixed = [family, 0, 0, 0, MAIN_TABLE, STATIC, scope, UNICAST, 0, 0, 0, 0];
    let attributes = Attributes::default().with(RTA_OIF, &LOOPBACK.to_ne_bytes()).with(RTA_PREFSRC, &source);
    change(RTM_NEWROUTE, CREATE, &attributes.behind(&fixed))
}

fn change(kind: u16, flags: u16, body: &[u8]) -> Result<()> {
    let mut requests = Requests::default();
    requests.add(kind, flags, body)?;
    requests.send(None)
}

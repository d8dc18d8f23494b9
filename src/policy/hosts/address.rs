use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address in its usual form, of IPv6 with or without brackets.
pub(super) fn literal(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().map(IpAddr::V6).ok(),
        None => text.parse().ok(),
    }
}

/// Whether an address may belong to somebody on the internet: none of this machine, a private network, a link, or a
/// special purpose. An address of IPv4 inside one of IPv6 counts as itself.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_ipv4(address),
        IpAddr::V6(address) => match embedded_ipv4(address) {
            Some(inner) => is_public_ipv4(inner),
            None => is_public_ipv6(address),
        },
    }
}

fn is_public_ipv4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127, ..] => true,
        [100, second, ..] => second & 0xc0 == 64,
        [169, 254, ..] | [192, 168, ..] => true,
        [172, second, ..] => second & 0xf0 == 16,
        [192, 0, 0 | 2, _] => true,
        [198, 18 | 19, ..] => true,
        [198, 51, 100, _] | [203, 0, 113, _] => true,
        // Groups, what is reserved, and everybody at once.
        [first, ..] => first >= 224,
    };
    !special
}

fn is_public_ipv6(address: Ipv6Addr) -> bool {
    let is_documentation = matches!(address.segments(), [0x2001, 0xdb8, ..]);
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || is_documentation)
}

/// The address of IPv4 that one of IPv6 stands for: mapped, compatible, translated (`64:ff9b::/96`) or tunnelled
/// (`2002::/16`).
#[must_use]
pub fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let joined = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(joined(high, low)),
        // Not the unspecified address and the loopback.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => Some(joined(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(joined(high, low)),
        [0x2002, high, low, ..] => Some(joined(high, low)),
        _ => None,
    }
}

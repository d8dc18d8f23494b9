//! Addresses that stand for names in one run, so that a connection to an address shows which name was meant.
//!
//! An address stands for one name for good: whoever remembers it never gets to another host.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names that a run can look up.
const MOST: usize = 8192;
/// From here on; it is a network for tests of devices, which is nowhere in use.
const FIRST_V4: u32 = u32::from_be_bytes([198, 18, 0, 1]);
/// A local network that nobody has.
const NETWORK_V6: u128 = 0xfd65_7865_6373_7276 << 64;

/// See the module's description.
#[derive(Debug, Default)]
pub(in super::super) struct Names(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

/// What stands for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StandIn(u32);

impl StandIn {
    pub(super) fn v4(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_V4 + self.0)
    }

    pub(super) fn v6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(NETWORK_V6 + u128::from(self.0) + 1)
    }
}

impl Names {
    /// What stands for a name; none if there are too many.
    pub(super) fn stand_in(&self, name: &str) -> Option<StandIn> {
        let mut table = self.table();
        if let Some(number) = table.numbers.get(name) {
            return Some(StandIn(*number));
        }
        let number = u32::try_from(table.names.len()).ok().filter(|_| table.names.len() < MOST)?;
        let name: Arc<str> = name.into();
        table.numbers.insert(Arc::clone(&name), number);
        table.names.push(name);
        Some(StandIn(number))
    }

    /// For which name an address stands, if it does for any.
    pub(super) fn name(&self, address: IpAddr) -> Option<Arc<str>> {
        let number = match address {
            IpAddr::V4(address) => u128::from(address.to_bits().checked_sub(FIRST_V4)?),
            IpAddr::V6(address) => address.to_bits().checked_sub(NETWORK_V6 + 1)?,
        };
        self.table().names.get(usize::try_from(number).ok()?).cloned()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::hosts::is_public;

    #[test]
    fn an_address_stands_for_one_name_for_good() {
        let names = Names::default();
        let of = |number: usize| format!("host-{number}.example");
        let first: Vec<_> = (0..MOST).map(|number| names.stand_in(&of(number)).unwrap()).collect();
        assert_eq!(names.stand_in("one.more"), None);
        for (number, stand_in) in first.into_iter().enumerate() {
            assert_eq!(names.stand_in(&of(number)), Some(stand_in));
            for address in [IpAddr::from(stand_in.v4()), IpAddr::from(stand_in.v6())] {
                assert_eq!(names.name(address).as_deref(), Some(of(number).as_str()));
                assert!(!is_public(address), "{address}");
            }
        }
    }

    #[test]
    fn other_addresses_stand_for_nothing() {
        let names = Names::default();
        names.stand_in("a.example").unwrap();
        for address in [
            "198.18.0.0",
            "198.18.0.2",
            "0.0.0.0",
            "255.255.255.255",
            "fd65:7865:6373:7276::",
            "::1",
            "ff02::1",
        ] {
            assert_eq!(names.name(address.parse().unwrap()), None, "{address}");
        }
    }
}

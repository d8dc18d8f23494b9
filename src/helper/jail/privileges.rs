//! Giving up every privilege for good.

use rustix::io::{Errno, Result};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use super::{Done, facility};

/// Leaves this process, and everything that it starts, no capability and no way to one. Nothing that runs beside it
/// can look into it either.
pub(super) fn drop_all() -> Done<()> {
    empty_bounding_set().map_err(facility("the bounding set"))?;
    set_capabilities_secure_bits(secure_bits()).map_err(facility("securebits"))?;
    clear_ambient_capability_set().map_err(facility("ambient capabilities"))?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).map_err(facility("capabilities"))?;
    set_no_new_privs(true).map_err(facility("no_new_privs"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(facility("dumpable"))
}

/// All that this kernel has, which may be more than are known here.
fn empty_bounding_set() -> Result<()> {
    for number in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            Err(Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Being root means nothing.
fn secure_bits() -> CapabilitiesSecureBits {
    CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
}

//! Waiting on descriptors that the runtime does not know as such.

#![expect(unsafe_code, reason = "the runtime wants a promise about descriptors that no safe trait makes")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdRegisterError};

use super::exec::Child;

/// Something that owns one descriptor for its whole life and always names that one.
///
/// # Safety
/// `as_raw_fd` must return the same descriptor every time, and it must stay open until the value is dropped.
pub unsafe trait OwnsDescriptor: AsRawFd {}

// SAFETY: an owned descriptor is open until dropped and cannot change.
unsafe impl OwnsDescriptor for OwnedFd {}
// SAFETY: the pidfd of a child is private and never replaced; the reference keeps it alive.
unsafe impl OwnsDescriptor for Arc<Child> {}

/// Watches a descriptor for readiness.
///
/// # Errors
/// When the system's watch list is full.
pub fn watched<T: OwnsDescriptor>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    watched_or_back(inner, interest).map_err(|(_, error)| error)
}

/// The same, for a descriptor that is still needed when it cannot be watched.
///
/// # Errors
/// The descriptor, and why.
pub fn watched_or_back<T: OwnsDescriptor>(
    inner: T,
    interest: Interest,
) -> Result<AsyncFd<T>, (T, io::Error)> {
    // SAFETY: promised by the trait.
    unsafe { AsyncFd::register_with_interest(inner, interest) }.map_err(AsyncFdRegisterError::into_parts)
}

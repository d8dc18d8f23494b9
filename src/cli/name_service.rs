//! How a program that has glibc linked into it looks up host names.
//!
//! `getaddrinfo` loads a module for each service that `/etc/nsswitch.conf` names: code of another glibc than the one in
//! this program, in an image that was made for another. `files` and `dns` are linked in and are all that hosts need.

/// Host names come from `/etc/hosts` and DNS, whatever the image's configuration says, if this program is static.
///
/// To be called before any thread is started.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
#[expect(unsafe_code, reason = "there is no other way to tell glibc")]
pub(super) fn keep_to_what_is_linked() {
    use std::ffi::{c_char, c_int};

    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }
    // SAFETY: both are strings that end with a zero and live for ever, and no other thread can be looking up a name.
    let outcome = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
    // It fails for names of databases that there are not, and this one there is.
    debug_assert_eq!(outcome, 0);
}

/// Other builds load modules of their own libc, or have none.
#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
pub(super) fn keep_to_what_is_linked() {}

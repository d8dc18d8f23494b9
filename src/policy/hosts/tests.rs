use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use test_case::test_case;

use super::{Denial, Host, HostPattern, PatternError, embedded_ipv4, is_public};

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

#[test_case("Example.COM.", "example.com"; "case and dot")]
#[test_case("127.0.0.1.", "127.0.0.1"; "address with a dot")]
#[test_case("[::1]", "::1"; "brackets")]
#[test_case("::ffff:10.0.0.1", "10.0.0.1"; "mapped")]
#[test_case("[::FFFF:a00:1]", "10.0.0.1"; "mapped in hex")]
#[test_case("2130706433", "2130706433"; "decimal is a name")]
#[test_case("0x7f000001", "0x7f000001"; "hex is a name")]
#[test_case("0177.0.0.1", "0177.0.0.1"; "octal is a name")]
#[test_case("127.1", "127.1"; "short is a name")]
#[test_case("a_b.x-y", "a_b.x-y"; "underscore")]
fn hosts_have_one_form(text: &str, form: &str) {
    assert_eq!(host(text).to_string(), form);
    assert_eq!(host(text), host(form));
}

#[test_case("")]
#[test_case(".")]
#[test_case("localhost..")]
#[test_case("a..b")]
#[test_case(".a")]
#[test_case("a b")]
#[test_case("a\tb")]
#[test_case("a:80")]
#[test_case("http://a")]
#[test_case("a/b")]
#[test_case("u@a")]
#[test_case("[::1"; "bracket opens")]
#[test_case("::1]"; "bracket closes")]
#[test_case("[127.0.0.1]"; "IPv4 in brackets")]
#[test_case("fe80::1%eth0"; "zone")]
#[test_case("*.a"; "pattern")]
#[test_case("bücher.example"; "not ASCII")]
fn what_is_no_host(text: &str) {
    assert!(text.parse::<Host>().is_err());
    assert!("a".repeat(254).parse::<Host>().is_err());
}

#[test_case("example.com", &["example.com", "EXAMPLE.com."], &["a.example.com", "example.com.evil", "xexample.com"]; "exact")]
#[test_case("*.example.com", &["a.example.com", "a.b.example.com"], &["example.com", "xexample.com"]; "below")]
#[test_case("**.example.com", &["example.com", "a.b.example.com"], &["xexample.com"]; "with the apex")]
#[test_case("*", &["a", "10.0.0.1", "::1"], &[]; "everything")]
#[test_case("n?.x.invalid", &["n1.x.invalid"], &["n.x.invalid", "n12.x.invalid", "n1.y.x.invalid"]; "one character")]
#[test_case("*.local*", &["a.localhost", "a.b.local"], &["local", "a.xlocal"]; "in a label")]
#[test_case("a*.com", &["a.com", "ab.com"], &["ab.c.com"]; "not over a dot")]
#[test_case("10.0.0.1", &["10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::5", "::10.0.0.1"], &["10.0.0.2", "167772161", "0xa000001", "10.1"]; "address")]
#[test_case("[::1]", &["::1", "[::1]"], &["127.0.0.1", "::2"]; "IPv6")]
#[test_case("::ffff:10.0.0.1", &["10.0.0.1"], &["10.0.0.2"]; "mapped")]
#[test_case("10.*.*.*", &["10.1.2.3", "::ffff:10.9.9.9"], &["11.1.2.3", "10.1.2", "10.1.2.3.4"]; "addresses")]
#[test_case("127.0.0.?", &["127.0.0.1"], &["127.0.0.12"]; "one digit")]
#[test_case("example.com.", &["example.com"], &[]; "dot")]
fn patterns(pattern: &str, matching: &[&str], others: &[&str]) {
    let pattern: HostPattern = pattern.parse().unwrap();
    for text in matching {
        assert!(pattern.matches(&host(text)), "{text}");
    }
    for text in others {
        assert!(!pattern.matches(&host(text)), "{text}");
    }
}

#[test_case("", PatternError::Form)]
#[test_case("a:443", PatternError::Form; "port")]
#[test_case("https://a", PatternError::Form; "scheme")]
#[test_case("10.0.0.0/8", PatternError::Form; "slash")]
#[test_case("**", PatternError::Form; "double star alone")]
#[test_case("a.**.b", PatternError::Form; "double star inside")]
#[test_case("a b", PatternError::Form; "space")]
#[test_case("[a]", PatternError::Form; "brackets")]
#[test_case("[::1", PatternError::Form; "stray bracket")]
#[test_case("[::1]:80", PatternError::Form; "IPv6 with port")]
#[test_case("a..b", PatternError::Form; "empty label")]
#[test_case("..", PatternError::Form; "dots")]
#[test_case("fe80::*", PatternError::Form; "part of IPv6")]
#[test_case("bücher.example", PatternError::NotAscii; "not ASCII")]
#[test_case("10.*", PatternError::PartOfAddress; "part of an address")]
#[test_case("**.0.0.1", PatternError::PartOfAddress; "part of an address behind stars")]
fn what_is_no_pattern(text: &str, error: PatternError) {
    assert_eq!(text.parse::<HostPattern>(), Err(error));
}

#[test_case("1.1.1.1", true; "public")]
#[test_case("2606:4700::1111", true; "public IPv6")]
#[test_case("2002:101:101::1", true; "tunnel to a public one")]
#[test_case("0.0.0.0", false; "unspecified")]
#[test_case("10.255.255.255", false; "ten")]
#[test_case("100.64.0.1", false; "carrier")]
#[test_case("100.63.255.255", true; "before carrier")]
#[test_case("100.128.0.0", true; "behind carrier")]
#[test_case("127.8.9.1", false; "loopback")]
#[test_case("169.254.169.254", false; "link-local")]
#[test_case("172.15.255.255", true; "before 172.16")]
#[test_case("172.16.0.0", false; "172.16")]
#[test_case("172.31.255.255", false; "172.31")]
#[test_case("172.32.0.0", true; "behind 172.31")]
#[test_case("192.0.0.8", false; "protocol")]
#[test_case("192.0.1.1", true; "between")]
#[test_case("192.168.1.1", false; "192.168")]
#[test_case("198.19.255.255", false; "benchmark")]
#[test_case("198.20.0.0", true; "behind benchmark")]
#[test_case("203.0.113.5", false; "documentation")]
#[test_case("223.255.255.255", true; "last")]
#[test_case("224.0.0.1", false; "multicast")]
#[test_case("255.255.255.255", false; "broadcast")]
#[test_case("::", false; "unspecified IPv6")]
#[test_case("::1", false; "loopback IPv6")]
#[test_case("fd00::1", false; "unique local")]
#[test_case("fe80::1", false; "link-local IPv6")]
#[test_case("ff02::1", false; "multicast IPv6")]
#[test_case("::ffff:10.0.0.1", false; "mapped")]
#[test_case("::10.0.0.1", false; "compatible")]
#[test_case("64:ff9b::a00:1", false; "translated")]
#[test_case("2002:a00:1::", false; "tunnelled")]
fn public_addresses(text: &str, public: bool) {
    assert_eq!(is_public(text.parse().unwrap()), public);
}

#[test]
fn denials_cover_names_and_addresses() {
    let private: Denial = "private".parse().unwrap();
    for text in
        ["10.0.0.1", "169.254.169.254", "::1", "localhost", "a.localhost", "fe80::1", "::ffff:127.0.0.1"]
    {
        assert!(private.covers(&host(text)), "{text}");
    }
    for text in ["1.1.1.1", "example.com", "private", "2606:4700::1111"] {
        assert!(!private.covers(&host(text)), "{text}");
    }
    let pattern: Denial = "10.*.*.*".parse().unwrap();
    assert!(pattern.covers(&host("10.1.1.1")) && pattern.concerns_addresses());
    assert!(!"**.internal".parse::<Denial>().unwrap().concerns_addresses());
    for text in ["*", "**.*", "a:80", "10.0.0.0/8", ""] {
        assert!(text.parse::<Denial>().is_err(), "{text}");
    }
    assert_eq!(private.to_string(), "private");
}

/// What a pattern means, said in another way.
fn means(pattern: &str, name: &str) -> bool {
    fn labels(pattern: &[&str], name: &[&str]) -> bool {
        pattern.len() == name.len() && pattern.iter().zip(name).all(|(pattern, text)| glob(pattern, text))
    }
    fn glob(pattern: &str, text: &str) -> bool {
        match pattern.chars().next() {
            None => text.is_empty(),
            Some('*') => (0..=text.len()).any(|from| glob(&pattern[1..], &text[from..])),
            Some('?') => !text.is_empty() && glob(&pattern[1..], &text[1..]),
            Some(letter) => text.starts_with(letter) && glob(&pattern[1..], &text[1..]),
        }
    }
    let name: Vec<&str> = name.split('.').collect();
    let (skip, rest): (std::ops::RangeInclusive<usize>, _) = match pattern {
        "*" => return true,
        _ => match (pattern.strip_prefix("**."), pattern.strip_prefix("*.")) {
            (Some(rest), _) => (0..=name.len(), rest),
            (None, Some(rest)) => (1..=name.len(), rest),
            _ => (0..=0, pattern),
        },
    };
    let rest: Vec<&str> = rest.split('.').collect();
    skip.into_iter().any(|skipped| skipped <= name.len() && labels(&rest, &name[skipped..]))
}

proptest! {
    #[test]
    fn patterns_mean_what_they_say(
        pattern in r"(\*\*?\.)?[ab*?]{1,3}(\.[ab*?]{1,3}){0,2}",
        name in r"[ab]{1,3}(\.[ab]{1,3}){0,3}",
    ) {
        prop_assume!(!pattern.strip_prefix("**.").unwrap_or(&pattern).contains("**"));
        let parsed: HostPattern = pattern.parse().unwrap();
        prop_assert_eq!(parsed.matches(&host(&name)), means(&pattern, &name), "{} {}", pattern, name);
    }

    #[test]
    fn any_text_is_a_host_with_one_form_or_none(text in "\\PC{0,20}|[0-9a-fx.:\\[\\]]{0,24}") {
        if let Ok(host) = text.parse::<Host>() {
            prop_assert_eq!(host.to_string().parse::<Host>(), Ok(host));
        }
    }

    #[test]
    fn any_text_is_a_pattern_or_none(text in "\\PC{0,20}|[0-9a-f.:*?\\[\\]]{0,24}", name in "[a-z0-9.]{1,20}") {
        if let (Ok(pattern), Ok(host)) = (text.parse::<HostPattern>(), name.parse::<Host>()) {
            prop_assert!(pattern.may_match_addresses() || matches!(host, Host::Name(_)) || !pattern.matches(&host));
        }
        if let (Ok(pattern), Ok(host)) = (text.parse::<HostPattern>(), text.parse::<Host>()) {
            prop_assert!(pattern.is_literal() && pattern.matches(&host), "a host is a pattern of itself");
        }
    }

    #[test]
    fn an_address_is_the_same_in_every_disguise(bits: u32) {
        let inner = Ipv4Addr::from(bits);
        let [a, b, c, d] = inner.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let forms = [
            Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        ];
        let pattern: HostPattern = inner.to_string().parse().unwrap();
        for form in forms {
            prop_assert_eq!(embedded_ipv4(form), Some(inner));
            prop_assert_eq!(is_public(form.into()), is_public(inner.into()));
            prop_assert!(pattern.matches(&IpAddr::V6(form).into()));
        }
    }
}

//! What must hold for any input, as plain functions: the fuzz targets call them, and `tests/fuzz_corpus.rs` calls them
//! with the corpus and inputs made from it. Each takes the bytes of one input and panics where something does not hold.

use std::path::{Component, Path};

use exec_server::fuzzing::{self, SocksMessage};
use exec_server::path_uri::PathUri;
use exec_server::policy::egress::{EgressRules, Judgement, Refusal};
use exec_server::policy::hosts::{Denial, Host, HostPattern, embedded_ipv4, is_public};
use exec_server::policy::{Files, Policy, Surroundings};
use exec_server::process::env::Pattern;
use exec_server::protocol::code;
use exec_server::protocol::envelope::{Message, OutgoingRequest, RequestId};
use exec_server::protocol::network::{DomainAccess, ProxySettings};
use exec_server::protocol::salvage;
use exec_server::protocol::sandbox::SandboxContext;
use serde_json::Value;

/// Input: a message. What is accepted is JSON, and a request comes back from its own encoding.
pub fn envelope(input: &[u8]) {
    let Ok(message) = Message::parse(input) else { return };
    assert!(serde_json::from_slice::<Value>(input).is_ok(), "accepted what is no JSON");
    if let Message::Request { id, method, params, .. } = message {
        let text = encode(&id, &method, &params);
        let Ok(Message::Request { id: again, method: same, .. }) = Message::parse(text.as_bytes()) else {
            panic!("a request does not come back: {text}");
        };
        assert_eq!((again, same), (id, method));
    }
}

fn encode(id: &RequestId, method: &str, params: &Value) -> String {
    match serde_json::to_string(&OutgoingRequest { id, method, params }) {
        Ok(text) => text,
        Err(error) => panic!("a request cannot be encoded: {error}"),
    }
}

/// Input: a URI, or the bytes of a path. The canonical form of a URI that names a native path is its own canonical form,
/// that of another names none either; a native path comes back from its URI, without `.`, `..` and doubled slashes.
pub fn path_uri(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(uri) = PathUri::parse(text)
    {
        let Ok(again) = PathUri::parse(uri.as_str()) else { panic!("{text:?} has no canonical form") };
        match uri.to_native_path() {
            Ok(path) => {
                assert!(path.is_absolute());
                assert_eq!(again, uri, "{text:?}");
                comes_back(&path);
            }
            // A host in front of a drive vanishes in the parser; either is of another machine.
            Err(_) => assert!(again.to_native_path().is_err(), "{text:?}"),
        }
    }
    let path = [b"/", input].concat();
    if !path.contains(&0) {
        comes_back(Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&path)));
    }
}

/// Input: a file of a plugin or a skill. What is told of it is one line each and not too long; a declared file is below its
/// plugin.
pub fn capability(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (head, tools, paths) = fuzzing::capability(text);
    for line in head.iter().flatten().chain(&tools) {
        assert_eq!(line, &line.split_whitespace().collect::<Vec<_>>().join(" "), "{text:?}");
    }
    assert!(tools.iter().all(|tool| !tool.is_empty() && tool.chars().count() <= 1_024), "{text:?}");
    if let Some([name, description, _]) = head {
        assert!(!name.is_empty() && name.chars().count() <= 64 && !description.is_empty(), "{text:?}");
    }
    for name in paths.iter().flatten() {
        assert!(!matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '\0']), "{text:?}");
    }
}

/// Input: a pattern, a line end, a host. A host comes back from its own form and is a pattern of itself alone; what
/// matches an address of IPv4 matches it in its forms of IPv6 too, and those are public if it is.
pub fn hosts(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (pattern, host) = text.split_once('\n').unwrap_or((text, text));
    let Ok(host) = host.parse::<Host>() else { return };
    assert_eq!(host.to_string().parse(), Ok(host.clone()));
    let Ok(own) = host.to_string().parse::<HostPattern>() else {
        assert!(matches!(&host, Host::Name(_)), "an address is no pattern of itself: {host}");
        return;
    };
    assert!(own.is_literal() && own.matches(&host), "{host}");
    let Ok(pattern) = pattern.parse::<HostPattern>() else { return };
    let matches = pattern.matches(&host);
    if pattern.is_literal() && matches {
        assert!(own.matches(&host));
    }
    if let Ok(denial @ Denial::Hosts(_)) = pattern.to_string().parse() {
        assert_eq!(denial.covers(&host), matches);
    }
    if let Host::Address(std::net::IpAddr::V4(address)) = host {
        let [a, b, c, d] = address.octets();
        let translated = std::net::Ipv6Addr::from([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]);
        assert_eq!(embedded_ipv4(translated), Some(address));
        assert_eq!(is_public(translated.into()), is_public(address.into()));
        assert_eq!(pattern.matches(&std::net::IpAddr::V6(translated).into()), matches);
    }
}

/// Input: a pattern, a line end, a host, a line end, an address. A rule that allows everything opens what is public and
/// nothing else; one that denies a host denies it in every disguise and under every name; one that allows an address opens
/// that address.
pub fn egress(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut lines = text.splitn(3, '\n');
    let (Some(pattern), Some(host), address) = (lines.next(), lines.next(), lines.next()) else { return };
    let Ok(host) = host.parse::<Host>() else { return };
    let open = egress_rules(&[("*", DomainAccess::Allow)], false);
    let is_local = match &host {
        Host::Address(address) => !is_public(*address),
        Host::Name(name) => name == "localhost",
    };
    assert_eq!(open.judge(&host) == Judgement::Allowed, !is_local, "{host}");
    let found: Vec<std::net::IpAddr> = address.and_then(|text| text.parse().ok()).into_iter().collect();
    if let (Host::Name(_), false) = (&host, is_local)
        && open.check_addresses(&host, &found).is_ok()
    {
        assert!(!found.is_empty() && found.iter().all(|address| is_public(*address)), "{host} {found:?}");
    }
    if !pattern.parse::<HostPattern>().is_ok_and(|pattern| !pattern.is_everything()) {
        return;
    }
    let denying = egress_rules(&[("*", DomainAccess::Allow), (pattern, DomainAccess::Deny)], true);
    let is_denied = |host: &Host| denying.judge(host) == Judgement::Refused(Refusal::Denied);
    for address in found {
        let address_denied = is_denied(&address.into());
        assert_eq!(
            denying.check_addresses(&host, &[address]).is_err(),
            address_denied,
            "{pattern} {address}"
        );
        if let std::net::IpAddr::V4(inner) = address {
            assert_eq!(is_denied(&std::net::IpAddr::V6(inner.to_ipv6_mapped()).into()), address_denied);
        }
    }
    let allowing = egress_rules(&[(pattern, DomainAccess::Allow)], false);
    if is_local && allowing.judge(&host) == Judgement::Allowed {
        assert_eq!(pattern.parse(), Ok(host), "a rule opens something else that is local");
    }
}

fn egress_rules(domains: &[(&str, DomainAccess)], allow_local_binding: bool) -> EgressRules {
    let settings = ProxySettings {
        domains: Some(domains.iter().map(|(text, access)| ((*text).to_owned(), *access)).collect()),
        allow_local_binding,
        ..ProxySettings::closed()
    };
    match EgressRules::new(&settings) {
        Ok(rules) => rules,
        Err(error) => panic!("a pattern is none in a rule: {error}"),
    }
}

/// Input: a length of pieces, and a stream of requests. Whether a request has two readings does not depend on the pieces;
/// the first is found if it has both headers. Its target is a host and a port in one form, and `Host` does not change it.
pub fn request_head(input: &[u8]) {
    let Some((piece, stream)) = input.split_first() else { return };
    let whole = fuzzing::request_with_two_readings(std::iter::once(stream));
    let in_pieces = fuzzing::request_with_two_readings(stream.chunks(usize::from(*piece) + 1));
    assert_eq!(whole, in_pieces, "the pieces matter");
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(_)) = request.parse(stream) else { return };
    let has = |name: &str| request.headers.iter().any(|header| header.name.eq_ignore_ascii_case(name));
    assert_eq!(whole == 1, has("content-length") && has("transfer-encoding"), "the first request");
    let hosts: Vec<(&str, &[u8])> = request
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("host"))
        .map(|header| ("host", header.value))
        .collect();
    let target = request.path.unwrap_or_default();
    let Some((host, port)) = fuzzing::request_target(target, &hosts) else { return };
    assert!(!host.is_empty() && !host.contains(['@', '/', '[', ']', '\\']) && host.is_ascii(), "{host:?}");
    if target.starts_with('/') {
        return;
    }
    assert_eq!(fuzzing::request_target(target, &[]), Some((host, port)), "Host has changed the target");
}

/// Input: the bytes of a message. More bytes change nothing of what is said; a header comes back.
pub fn socks(input: &[u8]) {
    let whole = fuzzing::socks_messages(input);
    for cut in 0..input.len() {
        let parts = fuzzing::socks_messages(&input[..cut]);
        for (part, whole) in parts.iter().zip(&whole) {
            match part {
                SocksMessage::Incomplete => assert!(cut < 263, "too much is waited for"),
                // What comes behind an address of an unknown kind is not known to be a part of it.
                SocksMessage::Complete(text, _) if text == "other" || text.ends_with("None") => {}
                known => assert_eq!(known, whole, "more bytes change what is said"),
            }
        }
    }
    for message in whole {
        assert!(!matches!(message, SocksMessage::Complete(_, used) if used > input.len()));
    }
    let Some((host, port, used)) = fuzzing::socks_datagram(input) else { return };
    assert!(used <= input.len());
    if let Ok(ip) = host.parse::<std::net::IpAddr>() {
        let header = fuzzing::socks_header((ip, port).into());
        assert_eq!(
            fuzzing::socks_datagram(&header),
            Some((ip.to_canonical().to_string(), port, header.len()))
        );
    }
}

fn comes_back(path: &Path) {
    let Ok(uri) = PathUri::from_native_path(path) else { panic!("no URI for {path:?}") };
    let Ok(native) = uri.to_native_path() else { panic!("no path for {uri}") };
    assert_eq!(PathUri::from_native_path(&native).as_ref(), Ok(&uri), "{path:?}");
    assert_eq!(PathUri::parse(uri.as_str()).as_ref(), Ok(&uri), "{path:?}");
}

/// Input: a pattern, a line end, a name. The matcher agrees with the definition of a match.
pub fn env_pattern(input: &[u8]) {
    let text: String = String::from_utf8_lossy(input).chars().take(200).collect();
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, ""));
    let expected = !pattern.is_empty() && matches(&folded(pattern), &folded(name));
    assert_eq!(Pattern::new(pattern).matches(name), expected, "{pattern:?} {name:?}");
}

fn folded(text: &str) -> Vec<char> {
    text.chars().map(|char| char.to_lowercase().next().unwrap_or(char)).collect()
}

/// By the definition: row by row, which beginnings of the name each beginning of the pattern matches.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let mut reach = vec![false; name.len() + 1];
    reach[0] = true;
    for wanted in pattern {
        let before = reach.clone();
        for at in 0..=name.len() {
            reach[at] = match wanted {
                '*' => before[at] || (at > 0 && reach[at - 1]),
                '?' => at > 0 && before[at - 1],
                other => at > 0 && before[at - 1] && name[at - 1] == *other,
            };
        }
    }
    reach[name.len()]
}

/// Input: a request. Its params are decoded as the server decodes them, refused with one of two codes, and equal to
/// themselves after being encoded and decoded again.
pub fn params(input: &[u8]) {
    let Ok(Message::Request { method, params, .. }) = Message::parse(input) else { return };
    match fuzzing::recode(&method, params) {
        Ok(encoded) => {
            assert_eq!(fuzzing::recode(&method, encoded.clone()), Ok(encoded), "{method}");
        }
        Err(error) if fuzzing::METHODS.contains(&method.as_str()) => {
            assert_eq!(error.code, code::INVALID_PARAMS, "{method}: {error}");
        }
        Err(error) => assert_eq!(error.code, code::METHOD_NOT_FOUND, "{method}: {error}"),
    }
}

/// Input: frames in a short form (see [`stream`]). What the filter lets through does not depend on how the bytes come
/// in, and is what a plain reading of the whole stream says.
pub fn oversize(input: &[u8]) {
    let Some((piece, script)) = input.split_first() else { return };
    let stream = stream(script);
    let whole = fuzzing::filter(&stream, usize::MAX);
    let in_pieces = fuzzing::filter(&stream, usize::from(*piece) + 1);
    assert!(whole == in_pieces, "the pieces matter");
    let (passed, tails) = expected(&stream);
    assert!(whole.0 == passed, "something else passes");
    let found: Vec<(u64, Vec<u8>)> =
        whole.1.into_iter().map(|(number, tail)| (number, tail.to_vec())).collect();
    assert_eq!(found, tails);
}

/// Longer streams show nothing that these do not.
const STREAM_BYTES: usize = 256 << 10;

/// Spells out frames from five bytes each: the first byte of the header; the shape (bit 0 masked, bits 1 and 2 the form of
/// the length, 3 for bytes that follow as they are); the length, three bytes.
fn stream(mut script: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let [first, shape, low, middle, high, rest @ ..] = script {
        script = rest;
        if stream.len() > STREAM_BYTES {
            break;
        }
        if shape >> 1 & 3 == 3 {
            let (raw, rest) = script.split_at(script.len().min(usize::from(*low % 32)));
            stream.extend_from_slice(raw);
            script = rest;
            continue;
        }
        let length = usize::from(*low) | usize::from(*middle) << 8 | usize::from(*high % 4) << 16;
        let masked = (shape & 1) << 7;
        stream.push(*first);
        match (shape >> 1 & 3, u8::try_from(length), u16::try_from(length)) {
            (0, Ok(short @ 0..=125), _) => stream.push(masked | short),
            (0 | 1, _, Ok(medium)) => {
                stream.push(masked | 126);
                stream.extend_from_slice(&medium.to_be_bytes());
            }
            _ => {
                stream.push(masked | 127);
                stream.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        if masked != 0 {
            stream.extend_from_slice(&[*low, *middle, *first, *shape]);
        }
        stream.extend((0..=250).cycle().take(length));
    }
    stream
}

/// What passes of a stream, and the ends of the messages that are cut.
fn expected(mut rest: &[u8]) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
    let (limit, head) = fuzzing::FILTER_LIMITS;
    let (mut passed, mut tails) = (Vec::new(), Vec::new());
    let (mut number, mut size, mut cut) = (0, 0_u64, None::<Vec<u8>>);
    while let Some((header, length)) = header(rest) {
        let (frame, payload) = rest.split_at(header);
        let complete = payload.len() as u64 >= length;
        let (payload, after) = payload
            .split_at(usize::try_from(length).map_or(payload.len(), |length| length.min(payload.len())));
        rest = after;
        let (first, masked) = (frame[0], frame[1] & 0x80 != 0);
        if first & 0x08 != 0 || !masked {
            passed.extend_from_slice(frame);
            passed.extend_from_slice(payload);
            continue;
        }
        let mask = &frame[header - 4..];
        let begins = size == 0 && first & 0x0f != 0;
        size = size.saturating_add(length);
        let from = match &cut {
            Some(_) => 0,
            None if size > limit => {
                cut = Some(Vec::new());
                let shown = if begins { length.min(head) } else { 0 };
                passed.push(0x80 | if begins { first & 0xf0 | 0x02 } else { first });
                if shown == 0 {
                    passed.push(0x80);
                } else {
                    passed.push(0xff);
                    passed.extend_from_slice(&shown.to_be_bytes());
                }
                passed.extend_from_slice(mask);
                let shown = payload.len().min(usize::try_from(shown).unwrap_or(usize::MAX));
                passed.extend_from_slice(&payload[..shown]);
                shown
            }
            None => {
                passed.extend_from_slice(frame);
                passed.extend_from_slice(payload);
                payload.len()
            }
        };
        if let Some(tail) = &mut cut {
            tail.extend((from..payload.len()).map(|at| payload[at] ^ mask[at % 4]));
            tail.drain(..tail.len().saturating_sub(512));
        }
        if complete && first & 0x80 != 0 {
            tails.extend(cut.take().map(|tail| (number, tail)));
            (number, size) = (number + 1, 0);
        }
    }
    (passed, tails)
}

/// The length of a complete header, and of the payload that it announces.
fn header(bytes: &[u8]) -> Option<(usize, u64)> {
    let second = *bytes.get(1)?;
    let (form, length) = match second & 0x7f {
        126 => (4, u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)),
        short => (2, u64::from(short)),
    };
    let header = form + if second & 0x80 == 0 { 0 } else { 4 };
    (bytes.len() >= header).then_some((header, length))
}

/// Input: a sandbox context. What it allows is the same after it was encoded and decoded again; its rules are on absolute
/// paths without `.` and `..`, and each decides at its own path.
pub fn policy(input: &[u8]) {
    let Ok(context) = serde_json::from_slice::<SandboxContext>(input) else { return };
    let around = Surroundings { cwd: Some(Path::new("/w")), temporary_directory: Some(Path::new("/t")) };
    let policy = Policy::of(&context, &around);
    let Ok(again) = serde_json::to_vec(&context).and_then(|text| serde_json::from_slice(&text)) else {
        panic!("a context does not come back");
    };
    match (policy, Policy::of(&again, &around)) {
        (Ok(policy), Ok(same)) => {
            assert_eq!(policy.network, same.network);
            same_files(&policy.files, &same.files);
        }
        (one, other) => assert_eq!(one.err(), other.err()),
    }
}

fn same_files(one: &Files, other: &Files) {
    let (one, other) = match (one, other) {
        (Files::Limited(one), Files::Limited(other)) => (one, other),
        (Files::Unlimited, Files::Unlimited) => return,
        _ => panic!("limits come or go"),
    };
    assert_eq!(one.rules(), other.rules());
    for (path, access) in one.rules().iter() {
        assert_eq!(one.access(path), *access);
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        assert!(path.is_absolute() && plain, "{path:?}");
        assert_eq!(one.denied_by_glob(path), other.denied_by_glob(path));
    }
    for glob in one.globs() {
        assert!(glob.root().parent().is_some() && !glob.matches(glob.root()), "{glob:?}");
    }
}

/// Input: a message, with two bytes behind it that say how much of its beginning and its end is known. An id that is found
/// is the message's own.
pub fn salvage(input: &[u8]) {
    let Some((message, &[head, tail])) = input.split_last_chunk::<2>() else { return };
    let head = message.len() * usize::from(head) / 255;
    let tail = (message.len() - head) * usize::from(tail) / 255;
    let found = salvage::request_id(&message[..head], &message[message.len() - tail..]);
    if let (Some(found), Ok(Message::Request { id, .. })) = (found, Message::parse(message)) {
        assert_eq!(found, id, "the id of another request");
    }
}

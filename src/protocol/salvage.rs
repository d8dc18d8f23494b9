//! The id of a request of which only the beginning and the end are known.

use super::envelope::{Message, RequestId};

/// Finds the `id` member of a message that was too large to keep, if one of its ends shows it.
#[must_use]
pub fn request_id(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    in_head(head).or_else(|| in_tail(tail))
}

fn parse(value: &[u8]) -> Option<RequestId> {
    let message = [b"{\"method\":\"\",\"id\":", value, b"}"].concat();
    match Message::parse(&message) {
        Ok(Message::Request { id, .. }) => Some(id),
        _ => None,
    }
}

/// Walks the members of the outermost object as far as they are complete.
fn in_head(head: &[u8]) -> Option<RequestId> {
    let mut depth = 0_usize;
    let mut at = 0;
    let mut key: Option<&[u8]> = None;
    let mut expects_key = false;
    while at < head.len() {
        match head[at] {
            b'"' => {
                let end = string_end(head, at)?;
                if depth == 1 && key == Some(b"\"id\"") {
                    return parse(&head[at..end]);
                }
                if depth == 1 && expects_key {
                    key = Some(&head[at..end]);
                    expects_key = false;
                }
                at = end;
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                expects_key = depth == 1;
            }
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 1 => {
                key = None;
                expects_key = true;
            }
            b'-' | b'0'..=b'9' if depth == 1 && key == Some(b"\"id\"") => {
                let rest = &head[at..];
                let length = rest
                    .iter()
                    .position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n'))?;
                return parse(&rest[..length]);
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The end of a string that begins at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut index = at + 1;
    while index < text.len() {
        match text[index] {
            b'\\' => index += 2,
            b'"' => return Some(index + 1),
            _ => index += 1,
        }
    }
    None
}

/// The last member of the message, if that is the id.
fn in_tail(tail: &[u8]) -> Option<RequestId> {
    let tail = tail.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let colon = match tail.last()? {
        b'"' => tail.windows(2).rposition(|pair| pair[0] == b':' || pair == b": ").filter(|at| *at > 0)?,
        _ => tail.iter().rposition(|byte| *byte == b':')?,
    };
    let before = tail[..colon].trim_ascii_end().strip_suffix(b"\"id\"")?.trim_ascii_end();
    let member_begins = matches!(before.last(), Some(b',' | b'{'));
    member_begins.then(|| parse(tail[colon + 1..].trim_ascii()))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_found_at_either_end() {
        let text = |id: &str| Some(RequestId::Text(id.to_owned()));
        let number = |id| Some(RequestId::Integer(id));
        assert_eq!(request_id(br#"{"id":7,"method":"x","params":{"a":"ba"#, b""), number(7));
        assert_eq!(request_id(br#" { "method" : "m", "id" : "big", "params":["#, b""), text("big"));
        assert_eq!(request_id(br#"{"method":"id","params":{"id":1,"x":"\"id\":2"#, b"aaa"), None);
        assert_eq!(request_id(br#"{"params":{"#, br#"aaaa"},"id":-5}"#), number(-5));
        assert_eq!(request_id(br#"{"params":{"#, b"aaaa\"}, \"id\" : \"a:b\" }\r\n"), None);
        assert_eq!(request_id(br#"{"params":{"#, br#"aaaa"},"id":"ab"}"#), text("ab"));
        assert_eq!(request_id(br#"{"params":{"#, br#"aaaa,"id":5"}"#), None);
        assert_eq!(request_id(br#"{"id":1.5,"#, b""), None);
        assert_eq!(request_id(br#"{"id":12"#, b"    "), None);
        assert_eq!(request_id(b"     ", b"     "), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(head: Vec<u8>, tail: Vec<u8>) {
            let _ = request_id(&head, &tail);
        }
    }
}

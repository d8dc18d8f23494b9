//! Single quotes, as every shell of this family reads and writes them.

/// One word that stands for these bytes, whatever they are; they hold no NUL.
pub(super) fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in bytes {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            byte => word.push(*byte),
        }
    }
    word.push(b'\'');
    word
}

/// Reads one word made of single- and double-quoted parts and plain characters, as `export -p` and `alias` write it,
/// up to the end of its line. Returns it with the rest of the text; `None` if it is nothing that they write.
pub(super) fn unquoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut rest) = (Vec::new(), text);
    loop {
        match rest {
            [] => return Some((word, rest)),
            [b'\n', after @ ..] => return Some((word, after)),
            [quote @ (b'\'' | b'"'), after @ ..] => {
                let end = after.iter().position(|byte| byte == quote)?;
                let part = &after[..end];
                // Double quotes are written around single ones only.
                if *quote == b'"' && part.iter().any(|byte| b"$`\\".contains(byte)) {
                    return None;
                }
                word.extend_from_slice(part);
                rest = &after[end + 1..];
            }
            [b'\\', byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [byte, after @ ..] if is_plain(*byte) => {
                word.push(*byte);
                rest = after;
            }
            _ => return None,
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./:,+@%^".contains(&byte) || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_quoted_word_is_read_back(bytes in proptest::collection::vec(1_u8..=255, 0..40)) {
            let line = [quoted(&bytes), b"\nnext".to_vec()].concat();
            prop_assert_eq!(unquoted(&line), Some((bytes, b"next".as_slice())));
        }
    }

    #[test]
    fn words_that_shells_write() {
        let word = |text: &str| unquoted(text.as_bytes()).map(|(word, _)| String::from_utf8(word).unwrap());
        assert_eq!(word("'it'\"'\"'s'").as_deref(), Some("it's"));
        assert_eq!(word("plain/path:x").as_deref(), Some("plain/path:x"));
        assert_eq!(word("'two\nlines'\nnext").as_deref(), Some("two\nlines"));
        for bad in ["'open", "\"$(x)\"", "a b", "$x", "`x`", "a;b"] {
            assert_eq!(word(bad), None, "{bad}");
        }
    }
}

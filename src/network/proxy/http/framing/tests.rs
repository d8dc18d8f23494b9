use super::*;

const AMBIGUOUS: &[u8] =
    b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";

fn post(length: usize) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), &vec![b'x'; length]].concat()
}

fn read(pieces: &[&[u8]]) -> RequestReader {
    let mut reader = RequestReader::default();
    pieces.iter().for_each(|piece| reader.read(piece));
    reader
}

#[test]
fn a_large_body_in_one_piece_is_none_of_the_head() {
    let large = post(100 << 10);
    assert_eq!(read(&[&large, AMBIGUOUS]).ambiguous(), 2);
    assert_eq!(read(&[&[&large, AMBIGUOUS].concat()]).ambiguous(), 2);
}

#[test]
fn a_head_keeps_nothing_of_what_is_before_and_behind_it() {
    let mut head = Vec::new();
    assert_eq!(end_of_head(&mut head, &b"\r\n\n".repeat(100 << 10)), None);
    assert_eq!(head.capacity(), 0, "nothing is looked at again");
    let stream = post(100 << 10);
    assert_eq!(end_of_head(&mut head, &stream), Some(stream.len() - (100 << 10)));
    assert_eq!(head, stream[..stream.len() - (100 << 10)]);
    let blanks = b"\r\n".repeat(HEAD_BYTES);
    assert_eq!(read(&[&blanks, AMBIGUOUS]).ambiguous(), 1);
}

#[test]
fn a_head_ends_wherever_it_is_cut() {
    for at in 1..AMBIGUOUS.len() {
        let (one, other) = AMBIGUOUS.split_at(at);
        assert_eq!(read(&[&post(4), one, other]).ambiguous(), 2, "{at}");
    }
}

#[test]
fn a_head_above_the_limit_is_none_and_nothing_behind_it_is_read() {
    let sized = |size: usize| {
        let rest = "POST / HTTP/1.1\r\nContent-Length: 0\r\nX: \r\n\r\n".len();
        format!("POST / HTTP/1.1\r\nContent-Length: 0\r\nX: {}\r\n\r\n", "x".repeat(size - rest))
    };
    assert_eq!(read(&[sized(HEAD_BYTES).as_bytes(), AMBIGUOUS]).ambiguous(), 2);
    let above = read(&[sized(HEAD_BYTES + 1).as_bytes(), AMBIGUOUS]);
    assert!(matches!(above.place, Place::Opaque) && above.ambiguous() == 0);
}

use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;
use crate::protocol::process::{ExecOutputStream, ProcessOutputChunk, ReadResponse};

const LIMITS: Limits = Limits { events: 256, bytes: 1 << 20 };

fn chunk(seq: u64) -> ProcessOutputChunk {
    ProcessOutputChunk { seq, stream: ExecOutputStream::Stdout, chunk: vec![b'x'; 3].into() }
}

fn output(seq: u64) -> ExecProcessEvent {
    ExecProcessEvent::Output(chunk(seq))
}

fn exited(seq: u64) -> ExecProcessEvent {
    ExecProcessEvent::Exited { seq, exit_code: 7, sandbox_denied: Some(false) }
}

fn closed(seq: u64) -> ExecProcessEvent {
    ExecProcessEvent::Closed { seq }
}

fn read(chunks: &[u64], next_seq: u64, exited: bool, closed: bool) -> AccountedRead {
    let response = ReadResponse {
        chunks: chunks.iter().map(|seq| chunk(*seq)).collect(),
        next_seq,
        exited,
        exit_code: exited.then_some(7),
        closed,
        failure: None,
        sandbox_denied: false,
    };
    AccountedRead { response, lost: None }
}

fn all(reorder: &mut Reorder) -> Vec<ExecProcessEvent> {
    std::iter::from_fn(|| reorder.take()).collect()
}

fn after(events: Vec<ExecProcessEvent>) -> Reorder {
    let mut reorder = Reorder::default();
    for event in events {
        reorder.insert(event, LIMITS).unwrap();
    }
    all(&mut reorder);
    reorder
}

#[test]
fn exit_and_close_take_the_numbers_that_are_left() {
    let mut reorder = after(vec![output(1)]);
    assert_eq!(reorder.fill(read(&[2, 4], 6, true, true)), Filled::default());
    assert_eq!(all(&mut reorder), [output(2), exited(3), output(4), closed(5)]);
}

#[test]
fn an_exit_that_is_known_is_not_placed_again() {
    let mut reorder = after(vec![exited(1)]);
    assert_eq!(reorder.fill(read(&[2], 4, true, true)), Filled::default());
    assert_eq!(all(&mut reorder), [output(2), closed(3)]);
    let mut waiting = after(vec![output(1)]);
    waiting.insert(exited(3), LIMITS).unwrap();
    assert_eq!(waiting.fill(read(&[2], 4, true, false)), Filled::default());
    assert_eq!(all(&mut waiting), [output(2), exited(3)]);
}

#[test]
fn nothing_new_is_nothing() {
    let mut reorder = after(vec![output(1)]);
    assert_eq!(reorder.fill(read(&[], 2, false, false)), Filled::default());
    assert_eq!(all(&mut reorder), []);
    let mut ended = after(vec![exited(1), closed(2)]);
    assert_eq!(ended.fill(read(&[], 3, true, true)), Filled::default());
    assert_eq!(all(&mut ended), []);
}

#[test]
fn events_pushed_after_the_read_wait_for_it() {
    let mut reorder = after(vec![output(1)]);
    reorder.insert(output(4), LIMITS).unwrap();
    assert_eq!(all(&mut reorder), []);
    reorder.fill(read(&[2, 3], 4, false, false));
    assert_eq!(all(&mut reorder), [output(2), output(3), output(4)]);
}

#[test]
fn lost_output_is_a_jump_and_reported() {
    let mut reorder = after(vec![output(1)]);
    let lost = LostOutput { bytes: 500, first_seq: 2, last_seq: 5 };
    let gap = AccountedRead { lost: Some(lost), ..read(&[6, 8], 10, true, true) };
    assert_eq!(reorder.fill(gap), Filled { lost: Some(lost), more: false });
    assert_eq!(all(&mut reorder), [output(6), exited(7), output(8), closed(9)]);
}

#[test]
fn a_server_that_does_not_count_loses_an_unknown_amount() {
    let mut reorder = after(vec![output(1)]);
    let filled = reorder.fill(read(&[5], 6, false, false));
    assert_eq!(filled.lost, Some(LostOutput { bytes: 0, first_seq: 2, last_seq: 4 }));
    assert_eq!(all(&mut reorder), [output(5)]);
}

#[test]
fn an_exit_among_lost_output_is_still_told() {
    let mut reorder = after(vec![output(1)]);
    let filled = reorder.fill(read(&[6], 8, true, true));
    assert_eq!(filled.lost, Some(LostOutput { bytes: 0, first_seq: 2, last_seq: 4 }));
    assert_eq!(all(&mut reorder), [exited(5), output(6), closed(7)]);
}

#[test]
fn a_cut_answer_asks_for_the_rest() {
    let mut reorder = after(vec![output(1)]);
    assert_eq!(reorder.fill(read(&[2, 3], 4, true, true)), Filled { lost: None, more: true });
    assert_eq!(all(&mut reorder), [output(2), output(3)]);
    assert_eq!(reorder.fill(read(&[4], 7, true, true)), Filled::default());
    assert_eq!(all(&mut reorder), [output(4), exited(5), closed(6)]);
}

#[test]
fn nonsense_numbers_do_no_harm() {
    let mut reorder = after(vec![output(1)]);
    reorder.fill(read(&[], 0, true, true));
    reorder.fill(read(&[], u64::MAX, true, true));
    assert_eq!(all(&mut reorder).last(), Some(&closed(u64::MAX - 1)));
}

#[test]
fn what_waits_is_bounded() {
    let mut reorder = Reorder::default();
    for seq in 2..258 {
        assert_eq!(reorder.insert(output(seq), LIMITS), Ok(()));
    }
    assert_eq!(reorder.insert(output(300), LIMITS), Err(Overflow));
    assert_eq!(reorder.insert(output(1), LIMITS), Ok(()));
    assert_eq!(all(&mut reorder).len(), 257);
    let big = ProcessOutputChunk { chunk: vec![0; LIMITS.bytes + 1].into(), ..chunk(259) };
    assert_eq!(reorder.insert(ExecProcessEvent::Output(big.clone()), LIMITS), Err(Overflow));
    let next = ProcessOutputChunk { seq: 258, ..big };
    assert_eq!(reorder.insert(ExecProcessEvent::Output(next), LIMITS), Ok(()));
}

proptest! {
    #[test]
    fn any_order_with_repeats_comes_out_once_and_sorted(
        order in Just((1..=40u64).collect::<Vec<_>>()).prop_shuffle(),
        repeats in proptest::collection::vec(1..=40u64, 0..20),
    ) {
        let mut reorder = Reorder::default();
        let mut seen = Vec::new();
        for seq in order.into_iter().chain(repeats) {
            reorder.insert(output(seq), LIMITS).unwrap();
            seen.extend(all(&mut reorder).iter().filter_map(ExecProcessEvent::seq));
        }
        prop_assert_eq!(seen, (1..=40).collect::<Vec<_>>());
        prop_assert_eq!(reorder.waiting_bytes, 0);
    }

    #[test]
    fn whatever_was_received_before_a_read_completes_it(
        exit_at in 1..20u64,
        received in proptest::collection::btree_set(1..=20u64, 0..20),
    ) {
        let close = 20;
        let event = |seq| if seq == exit_at { exited(seq) } else if seq == close { closed(seq) } else { output(seq) };
        let mut reorder = Reorder::default();
        let mut seen = Vec::new();
        for seq in received {
            reorder.insert(event(seq), LIMITS).unwrap();
            seen.extend(all(&mut reorder));
        }
        let chunks: Vec<_> = (reorder.taken() + 1..close).filter(|seq| *seq != exit_at).collect();
        let filled = reorder.fill(read(&chunks, close + 1, true, true));
        seen.extend(all(&mut reorder));
        prop_assert_eq!(filled, Filled::default());
        prop_assert_eq!(seen, (1..=close).map(event).collect::<Vec<_>>());
    }
}

//! Micro-benchmarks of what the server does most. `cargo bench` runs them; `cargo bench -- NAME` those with a name.

#![expect(clippy::unwrap_used, reason = "a benchmark, which the lint cannot tell from production code")]

mod encode;
mod output_log;
mod policy;
mod resolve;
mod support;
mod walk;

fn main() {
    divan::main();
}

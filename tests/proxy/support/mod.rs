mod names;
mod reply;
mod run;
mod target;

pub(crate) use names::Names;
pub(crate) use reply::{Connection, Reply, exchange};
pub(crate) use run::{Run, launch, settings};
pub(crate) use target::{Target, closed_port, echo, echo_datagrams};

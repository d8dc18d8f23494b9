use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use exec_server::network::proxy::resolve::Resolve;
use futures_util::future::{BoxFuture, pending, ready};

/// Names of the test's own. One with several answers gives one after the other, and then the last.
#[derive(Debug, Default)]
pub(crate) struct Names {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    /// Knows a name.
    pub(crate) fn with(mut self, name: &str, answers: &[&[&str]]) -> Self {
        let parse = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
        self.answers.insert(name.to_owned(), answers.iter().map(parse).collect());
        self
    }

    /// What was asked for, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Names {
    fn resolve(&self, name: String, port: u16) -> BoxFuture<'_, io::Result<Vec<SocketAddr>>> {
        let mut asked = self.asked.lock().unwrap();
        asked.push(name.clone());
        let turn = asked.iter().filter(|earlier| **earlier == name).count() - 1;
        if name == "slow.test" {
            return Box::pin(pending());
        }
        let Some(answers) = self.answers.get(&name) else {
            return Box::pin(ready(Err(io::ErrorKind::NotFound.into())));
        };
        let answer = &answers[turn.min(answers.len() - 1)];
        let found = answer.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        Box::pin(ready(Ok(found)))
    }
}

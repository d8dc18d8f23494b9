//! Answers questions about names with addresses that stand for them. Nobody else is asked: whether a name exists is seen
//! when it is connected to, by whoever may.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use simple_dns::rdata::{A, AAAA, RData};
use simple_dns::{
    CLASS, OPCODE, Packet, PacketFlag, QTYPE, Question, RCODE, ResourceRecord, TYPE, header_buffer,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::coop::consume_budget;

use super::names::Names;
use crate::policy::egress::LOCALHOST;
use crate::policy::hosts::Host;

/// How long an answer may be remembered, in seconds: it stays true.
const LIFE: u32 = 60;
/// A question is shorter.
const MESSAGE_BYTES: usize = 4096;
/// Options of a client, and perhaps a signature.
const MOST_ADDITIONAL: u16 = 4;
/// How long a client may take to ask on.
const PATIENCE: Duration = Duration::from_secs(30);

/// Knows what the names of one run stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Responder<'a> {
    pub(super) names: &'a Names,
    /// Addresses of IPv6 lead anywhere.
    pub(super) has_ipv6: bool,
}

impl Responder<'_> {
    /// Answers messages for ever. What cannot be read, or sent, is dropped, as networks do.
    pub(super) async fn serve_messages(self, socket: &UdpSocket) -> io::Result<()> {
        let mut message = vec![0; MESSAGE_BYTES];
        loop {
            socket.readable().await?;
            // What is ready at once never waits: a flood would keep the task from being ended.
            consume_budget().await;
            let Ok((length, from)) = socket.try_recv_from(&mut message) else { continue };
            if let Some(answer) = self.answer(&message[..length]) {
                drop(socket.try_send_to(&answer, from));
            }
        }
    }

    /// Answers what is asked on one connection.
    pub(super) async fn serve_connection(self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let question = tokio::time::timeout(PATIENCE, read(&mut stream)).await??;
            let answer = self.answer(&question).ok_or(io::ErrorKind::InvalidData)?;
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat()).await?;
        }
    }

    /// The answer to a message; none to what is no question.
    fn answer(self, message: &[u8]) -> Option<Vec<u8>> {
        if header_buffer::has_flags(message, PacketFlag::RESPONSE).ok()? {
            return None;
        }
        let asked = is_plain(message).then(|| Packet::parse(message).ok()).flatten();
        let mut answer = Packet::new_reply(header_buffer::id(message).ok()?);
        answer.set_flags(PacketFlag::RECURSION_AVAILABLE);
        match asked.as_ref().map(|asked| (asked.opcode(), asked.questions.as_slice())) {
            Some((OPCODE::StandardQuery, [question])) => {
                if header_buffer::has_flags(message, PacketFlag::RECURSION_DESIRED).ok()? {
                    answer.set_flags(PacketFlag::RECURSION_DESIRED);
                }
                answer.questions.push(question.clone());
                match self.records(question) {
                    Ok(record) => answer.answers.extend(record),
                    Err(code) => *answer.rcode_mut() = code,
                }
            }
            Some((OPCODE::StandardQuery, _)) | None => *answer.rcode_mut() = RCODE::FormatError,
            Some(_) => *answer.rcode_mut() = RCODE::NotImplemented,
        }
        answer.build_bytes_vec().ok()
    }

    /// What is known of a name: an address at most, of the kind that is asked for.
    fn records<'a>(self, question: &Question<'a>) -> Result<Option<ResourceRecord<'a>>, RCODE> {
        let Ok(Host::Name(name)) = question.qname.to_string().parse::<Host>() else {
            return Err(RCODE::NameError);
        };
        let wants = |kind| [QTYPE::TYPE(kind), QTYPE::ANY].contains(&question.qtype);
        let (wants_v4, wants_v6) = (wants(TYPE::A), wants(TYPE::AAAA) && self.has_ipv6);
        if !wants_v4 && !wants_v6 {
            return Ok(None);
        }
        let (v4, v6) = if name == LOCALHOST {
            (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
        } else {
            let stand_in = self.names.stand_in(&name).ok_or(RCODE::ServerFailure)?;
            (stand_in.v4(), stand_in.v6())
        };
        let data = if wants_v4 {
            RData::A(A { address: v4.to_bits() })
        } else {
            RData::AAAA(AAAA { address: v6.to_bits() })
        };
        Ok(Some(ResourceRecord::new(question.qname.clone(), CLASS::IN, LIFE, data)))
    }
}

/// A question and nothing that takes room.
fn is_plain(message: &[u8]) -> bool {
    header_buffer::questions(message) == Ok(1)
        && header_buffer::answers(message) == Ok(0)
        && header_buffer::name_servers(message) == Ok(0)
        && header_buffer::additional_records(message).is_ok_and(|count| count <= MOST_ADDITIONAL)
}

/// A message on a connection, behind its length.
async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use simple_dns::{Name, QCLASS};

    fn ask(responder: Responder<'_>, name: &str, kind: TYPE) -> (RCODE, Vec<RData<'static>>) {
        let mut question = Packet::new_query(7);
        question.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new_unchecked(name);
        question.questions.push(Question::new(name, kind.into(), QCLASS::CLASS(CLASS::IN), false));
        let answer = responder.answer(&question.build_bytes_vec().unwrap()).unwrap();
        let answer = Packet::parse(&answer).unwrap();
        assert!(answer.id() == 7 && answer.has_flags(PacketFlag::RESPONSE | PacketFlag::RECURSION_DESIRED));
        (answer.rcode(), answer.answers.iter().map(|record| record.clone().into_owned().rdata).collect())
    }

    fn v4(address: [u8; 4]) -> Vec<RData<'static>> {
        vec![RData::A(A { address: u32::from_be_bytes(address) })]
    }

    #[test]
    fn names_have_one_address_of_each_kind() {
        let names = Names::default();
        let responder = Responder { names: &names, has_ipv6: true };
        assert_eq!(ask(responder, "a.example", TYPE::A), (RCODE::NoError, v4([198, 18, 0, 1])));
        assert_eq!(ask(responder, "b.example", TYPE::A), (RCODE::NoError, v4([198, 18, 0, 2])));
        assert_eq!(ask(responder, "A.Example", TYPE::A), (RCODE::NoError, v4([198, 18, 0, 1])));
        let (code, records) = ask(responder, "a.example", TYPE::AAAA);
        let [RData::AAAA(AAAA { address })] = records.as_slice() else { panic!("{records:?}") };
        assert_eq!(
            (code, names.name(Ipv6Addr::from_bits(*address).into()).as_deref()),
            (RCODE::NoError, Some("a.example"))
        );
        for kind in [TYPE::TXT, TYPE::MX, TYPE::HTTPS, TYPE::SRV, TYPE::PTR] {
            assert_eq!(ask(responder, "a.example", kind), (RCODE::NoError, Vec::new()), "{kind:?}");
        }
        let without = Responder { has_ipv6: false, ..responder };
        assert_eq!(ask(without, "a.example", TYPE::AAAA), (RCODE::NoError, Vec::new()));
        assert_eq!(ask(responder, "localhost", TYPE::A), (RCODE::NoError, v4([127, 0, 0, 1])));
        assert_eq!(ask(responder, "1.2.3.4", TYPE::A), (RCODE::NameError, Vec::new()));
        assert!((0..10_000).any(|number| names.stand_in(&format!("{number}.example")).is_none()));
        assert_eq!(ask(responder, "too.many", TYPE::A), (RCODE::ServerFailure, Vec::new()));
    }

    #[test]
    fn what_is_no_question_is_not_answered_and_what_is_no_plain_one_is_refused() {
        let names = Names::default();
        let responder = Responder { names: &names, has_ipv6: true };
        assert_eq!(responder.answer(&Packet::new_reply(1).build_bytes_vec().unwrap()), None);
        assert_eq!(responder.answer(&[0; 3]), None);
        let code = |message: &[u8]| Packet::parse(&responder.answer(message).unwrap()).unwrap().rcode();
        assert_eq!(code(&Packet::new_query(1).build_bytes_vec().unwrap()), RCODE::FormatError);
        let crowded = [&[0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[0; 40][..]].concat();
        assert_eq!(code(&crowded), RCODE::FormatError);
    }

    #[tokio::test]
    async fn a_flood_of_messages_does_not_keep_the_task() {
        let [server, client] = [(); 2].map(|()| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        client.connect(server.local_addr().unwrap()).unwrap();
        let question = Packet::new_query(1).build_bytes_vec().unwrap();
        (0..200).for_each(|_| assert_eq!(client.send(&question).unwrap(), question.len()));
        let server = UdpSocket::from_std(server).unwrap();
        server.readable().await.unwrap();
        let names = Names::default();
        let mut served = Box::pin((Responder { names: &names, has_ipv6: true }).serve_messages(&server));
        assert!(futures_util::poll!(&mut served).is_pending());
        let answers = std::iter::repeat_with(|| client.recv(&mut [0; 512])).take_while(Result::is_ok).count();
        assert!((1..200).contains(&answers), "{answers} answers at once");
    }

    proptest! {
        #[test]
        fn no_message_does_harm(message in prop::collection::vec(any::<u8>(), 0..600)) {
            let names = Names::default();
            if let Some(answer) = (Responder { names: &names, has_ipv6: true }).answer(&message) {
                prop_assert_eq!(header_buffer::id(&answer), header_buffer::id(&message));
            }
        }
    }
}

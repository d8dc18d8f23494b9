//! From a message to its effect: state, order, and who does the work.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::answers;
use super::calls::{Call, MethodLabel};
use super::order::Key;
use super::ticket::Ticket;
use super::work::{self, Done, DoneKind};
use super::{Connection, End, Handshake};
use crate::error_map::{IntoErrorObject, ProcessCallError};
use crate::process::{Process, WriteOutcome};
use crate::protocol::envelope::{ErrorObject, Malformed, Message, RequestId};
use crate::protocol::environment::StatusResponse;
use crate::protocol::http::RequestParams;
use crate::protocol::process::{
    CloseStdinResponse, Empty, ProcessId, ReadParams, ResizeParams, SignalParams, SignalResponse,
    StartParams, TerminalSize, TerminateResponse, WriteParams, WriteResponse, WriteStatus,
};
use crate::protocol::session::{InitializeParams, InitializeResult, Initialized};
use crate::protocol::{NotificationMethod, code};
use crate::rpc::Transport;
use crate::rpc::transport::CloseCode;
use crate::server::metrics::Taken;
use crate::session::{Lookup, MAX_ANSWER_OUTPUT, ReadOutcome, ReadRequest, Role, Session, SessionError};
use crate::telemetry::{AuditLog, Entry};

/// A request whose work has not begun.
pub(super) struct Queued(BoxFuture<'static, Done>);

impl<T: Transport> Connection<T> {
    pub(super) fn message(&mut self, message: Result<Message, Malformed>) -> Result<(), End> {
        match message {
            Ok(Message::Request { id, method, params, trace: _ }) => match Call::decode(&method, params) {
                Ok(call) => {
                    let ticket = self.ticket(id, call.label());
                    let ticket = ticket.accounted(self.audit(), &call, &self.asker);
                    self.request(ticket, call);
                }
                Err(error) => {
                    let ticket = self.ticket(id, MethodLabel::of(&method));
                    self.reply(answers::failure(&ticket, &error));
                }
            },
            Ok(Message::Notification { method, .. }) if method == Initialized::NAME => {
                return self.initialized();
            }
            Ok(Message::Notification { method, .. }) => {
                tracing::debug!(method = %method.escape_debug(), "an unknown notification is ignored");
            }
            Ok(Message::Response { id, outcome }) => {
                if !self.outgoing.questions.answer(&id, outcome) {
                    tracing::debug!(%id, "a response to no open request is ignored");
                }
            }
            Err(malformed) => {
                let error = ErrorObject::malformed(&malformed);
                let id = self.ticket(RequestId::UNREADABLE, MethodLabel::Unreadable);
                self.reply(answers::failure(&id, &error));
            }
        }
        self.hold = None;
        Ok(())
    }

    pub(super) fn ticket(&self, id: RequestId, method: MethodLabel) -> Ticket {
        Ticket::new(id, method, &self.shared.traffic)
    }

    fn audit(&self) -> &AuditLog {
        &self.shared.registry.executor().telemetry().audit
    }

    pub(super) fn record_end(&self) {
        self.audit().record(|| Entry::new("connection.end").by(Arc::clone(&self.asker)));
    }

    fn initialized(&mut self) -> Result<(), End> {
        self.handshake = match std::mem::replace(&mut self.handshake, Handshake::New) {
            Handshake::New => return Err(End::Close(CloseCode::Policy, "`initialized` before `initialize`")),
            Handshake::Initialized(attachment) | Handshake::Ready(attachment) => Handshake::Ready(attachment),
        };
        Ok(())
    }

    fn request(&mut self, ticket: Ticket, call: Call) {
        match call {
            Call::Initialize(params) => self.initialize(&ticket, params),
            Call::SessionList(_) => self.reply(answers::success(&ticket, &self.shared.registry.list())),
            call => match self.ready_for(&call) {
                Ok(session) => self.in_session(ticket, call, session),
                Err(error) => self.reply(answers::failure(&ticket, &error)),
            },
        }
    }

    fn initialize(&mut self, ticket: &Ticket, params: InitializeParams) {
        let outcome = match self.handshake {
            Handshake::New => self.attach(params),
            _ => Err(refuse("initialize may only be sent once per connection")),
        };
        self.reply(answers::answer(ticket, outcome));
    }

    fn attach(&mut self, params: InitializeParams) -> Result<InitializeResult, ErrorObject> {
        let registry = &self.shared.registry;
        let (attachment, taken) = match (params.resume_session_id, params.observe_session_id) {
            (Some(_), Some(_)) => {
                return Err(refuse("a connection resumes a session or observes one, not both"));
            }
            (Some(resume), None) => (registry.attach(&resume, Role::Holder), Taken::Resumed),
            (None, Some(observe)) => (registry.attach(&observe, Role::Observer), Taken::Observed),
            (None, None) => (registry.create(&params.client_name), Taken::Created),
        };
        let attachment = attachment.map_err(SessionError::into_error_object)?;
        self.shared.traffic.sessions.of(taken).increment();
        let result = InitializeResult {
            session_id: attachment.session().id().to_owned(),
            environment_info: Some(self.info.clone()),
            observer: attachment.role() == Role::Observer,
        };
        self.asker = self.who.asker(self.id, Some(&attachment));
        self.handshake = Handshake::Initialized(attachment);
        self.initialize_by = None;
        Ok(result)
    }

    /// Whether the handshake and the role allow a call.
    fn ready_for(&self, call: &Call) -> Result<Arc<Session>, ErrorObject> {
        match &self.handshake {
            Handshake::New => Err(refuse("client must call initialize before using exec methods")),
            Handshake::Initialized(_) => Err(refuse(&format!(
                "client must send initialized before using {} methods",
                call.method().split('/').next().unwrap_or_default()
            ))),
            Handshake::Ready(attachment)
                if attachment.role() == Role::Observer && !call.is_for_observers() =>
            {
                let message =
                    format!("`{}` is not for a connection that only observes the session", call.method());
                Err(refuse(&message))
            }
            Handshake::Ready(attachment) => Ok(Arc::clone(attachment.session())),
        }
    }

    /// Does what cannot block at once, in the order sent; gives the rest to tasks.
    fn in_session(&mut self, ticket: Ticket, call: Call, session: Arc<Session>) {
        // What follows a start waits for it, or it would meet a process that is not there yet.
        if let Some(behind) = call.process_id().and_then(|process| self.behind_start.get_mut(process)) {
            behind.push_back((ticket, call, self.hold.take()));
            self.deferred += 1;
            return;
        }
        match call {
            Call::Start(params) => self.start(ticket, params, session),
            Call::Info(_) => self.reply(answers::success(&ticket, &self.info)),
            Call::Status(_) => {
                self.reply(answers::success(&ticket, &StatusResponse { status: "ready".to_owned() }))
            }
            Call::List(_) => self.reply(answers::success(&ticket, &session.list())),
            Call::Read(params) => self.read(ticket, &params, &session),
            Call::Write(params) => self.write(ticket, params, &session),
            Call::CloseStdin(params) => {
                self.reply(answers::answer(&ticket, close_stdin(&session, &params.process_id)))
            }
            Call::Resize(params) => self.reply(answers::answer(&ticket, resize(&session, params))),
            Call::Signal(params) => self.reply(answers::answer(&ticket, signal(&session, params))),
            Call::Terminate(params) => {
                let grace = params.grace_ms.map(Duration::from_millis);
                let running = session.terminate(&params.process_id, grace);
                self.reply(answers::success(&ticket, &TerminateResponse { running }));
            }
            Call::FsWatchMissing(params) if !self.begin_watch(params.watch_id) => {
                self.reply(work::watching(&ticket, false));
            }
            Call::HttpRequest(params) => self.http(ticket, params),
            other => self.files(ticket, other),
        }
    }

    fn start(&mut self, ticket: Ticket, params: StartParams, session: Arc<Session>) {
        // Queued, it would hold up what is for the process that has the id already.
        if let Some(repeated) = session.repeated_start(&params, self.id) {
            return match repeated {
                Ok(started) => {
                    ticket.started(&started.result);
                    self.reply(answers::success(&ticket, &started.result));
                }
                Err(error) => self.reply(answers::failure(&ticket, &error.into_error_object())),
            };
        }
        self.behind_start.insert(params.exec.process_id.clone(), Default::default());
        let before = self.lanes.changes();
        let (place, _) = self.lanes.enter(Vec::new(), false);
        let (origin, takes_place) = (self.id, work::start_takes_place(&params));
        let task = Box::pin(work::start(ticket, params, session, origin, before, place));
        if takes_place {
            self.work(task);
        } else {
            let task = self.holding(task);
            self.tasks.spawn(task);
        }
    }

    fn files(&mut self, ticket: Ticket, call: Call) {
        let (keys, changes_files): (Vec<Key>, bool) = work::file_keys(&call).unwrap_or_default();
        let takes_place = work::takes_place(&call);
        if self.lanes.are_free(&keys)
            && let Some(reply) = work::at_once(&ticket, &call, &self.tools)
        {
            return self.reply(reply);
        }
        let (place, before) = self.lanes.enter(keys, changes_files);
        let tools = Arc::clone(&self.tools);
        let task: BoxFuture<'static, Done> = match call {
            Call::FsWatchMissing(params) => {
                Box::pin(work::watch_missing(ticket, params, tools, before, place))
            }
            call => Box::pin(work::files(ticket, call, tools, before, place, takes_place)),
        };
        if takes_place {
            self.work(task);
        } else {
            self.tasks.spawn(task);
        }
    }

    /// Whether the id of a watch is new. What the watch before has seen until now is told, then it ends.
    fn begin_watch(&mut self, id: u64) -> bool {
        if let Some(changed) = self.watching.changed() {
            self.missing_changed(changed);
        }
        self.watching.begin(id)
    }

    pub(super) fn missing_changed(&mut self, watch_id: u64) {
        self.reply(answers::missing_changed(watch_id));
    }

    /// It takes no place: a server that is slow to answer must hold nobody up.
    fn http(&mut self, ticket: Ticket, params: RequestParams) {
        let stream = params.stream_response.then_some(&params.request_id);
        match self.outgoing.bodies.admit(stream) {
            Ok(seat) => {
                let task = self.holding(Box::pin(work::http(ticket, params, Arc::clone(&self.tools), seat)));
                self.tasks.spawn(task);
            }
            Err(error) => self.reply(answers::failure(&ticket, &error.into_error_object())),
        }
    }

    /// The request, with what it holds of the connection until it is done.
    fn holding(&mut self, task: BoxFuture<'static, Done>) -> BoxFuture<'static, Done> {
        let hold = self.hold.take();
        Box::pin(async move {
            let done = task.await;
            drop(hold);
            done
        })
    }

    /// Runs a request when there is a place for it.
    fn work(&mut self, task: BoxFuture<'static, Done>) {
        let task = self.holding(task);
        if self.running < self.shared.concurrent_requests.get() {
            self.running += 1;
            self.tasks.spawn(task);
        } else {
            self.queue.push_back(Queued(task));
        }
    }

    /// A request has been done: its answer goes out, then what waited for it begins.
    pub(super) fn done(&mut self, done: Done) {
        self.reply(done.reply);
        let place = match done.kind {
            DoneKind::Wait => {
                self.waits -= 1;
                return;
            }
            DoneKind::Http(stream) => return self.outgoing.bodies.answered(stream),
            DoneKind::Control(place) => return self.lanes.leave(place),
            DoneKind::Work(place) => place,
            DoneKind::Start { id, place, takes_place, started } => {
                // Publishes the process's events, behind the answer that is queued now.
                drop(started);
                self.after_start(&id);
                if !takes_place {
                    return self.lanes.leave(place);
                }
                place
            }
            DoneKind::Watch { place, watch } => {
                if let Some(watch) = watch {
                    self.watching.set(watch);
                }
                place
            }
        };
        self.lanes.leave(place);
        self.running -= 1;
        while self.running < self.shared.concurrent_requests.get() {
            let Some(Queued(task)) = self.queue.pop_front() else { break };
            self.running += 1;
            self.tasks.spawn(task);
        }
    }

    fn after_start(&mut self, id: &ProcessId) {
        let behind = self.behind_start.remove(id).unwrap_or_default();
        self.deferred -= behind.len();
        for (id, call, hold) in behind {
            self.hold = hold;
            // Another start among them holds up what follows it in turn.
            self.request(id, call);
        }
        self.hold = None;
    }

    fn read(&mut self, ticket: Ticket, params: &ReadParams, session: &Session) {
        let process = match find(session, &params.process_id) {
            Ok(process) => process,
            Err(error) => return self.reply(answers::failure(&ticket, &error)),
        };
        let request = ReadRequest { after: params.after_seq.unwrap_or(0), max_bytes: params.max_bytes };
        let wait = Duration::from_millis(params.wait_ms.unwrap_or(0));
        match read_at_once(&process, request, wait.is_zero()) {
            Some(outcome) => self.reply(answers::read(&ticket, &outcome)),
            None => {
                self.waits += 1;
                self.tasks.spawn(work::read(ticket, process, request, wait, Arc::clone(&self.tools)));
            }
        }
    }

    fn write(&mut self, ticket: Ticket, params: WriteParams, session: &Session) {
        if params.write_id.is_empty() {
            let error = ProcessCallError::InvalidParams("`writeId` must not be empty".to_owned());
            return self.reply(answers::failure(&ticket, &error.into_error_object()));
        }
        let process = match session.process(&params.process_id) {
            Lookup::Found(process) => process,
            Lookup::Starting => return self.write_status(&ticket, WriteStatus::Starting),
            Lookup::Unknown => return self.write_status(&ticket, WriteStatus::UnknownProcess),
        };
        match process.write(&params.write_id, params.chunk.into_inner(), &self.waiting_writes) {
            WriteOutcome::Done(status) => self.write_status(&ticket, status),
            WriteOutcome::Waiting(answer) => {
                let (place, _) = self.lanes.enter(Vec::new(), false);
                self.running += 1;
                self.tasks.spawn(work::write(ticket, answer, place));
            }
            WriteOutcome::Full => self.reply(answers::failure(&ticket, &work::stdin_full(params.process_id))),
        }
    }

    fn write_status(&mut self, ticket: &Ticket, status: WriteStatus) {
        self.reply(answers::success(ticket, &WriteResponse { status }));
    }
}

fn refuse(message: &str) -> ErrorObject {
    ErrorObject::new(code::INVALID_REQUEST, message)
}

fn find(session: &Session, id: &ProcessId) -> Result<Arc<Process>, ErrorObject> {
    match session.process(id) {
        Lookup::Found(process) => Ok(process),
        Lookup::Starting => Err(ProcessCallError::Starting(id.clone()).into_error_object()),
        Lookup::Unknown => Err(ProcessCallError::Unknown(id.clone()).into_error_object()),
    }
}

/// The answer to a read, if memory has it: all of the page, and no reason to wait.
fn read_at_once(process: &Process, request: ReadRequest, must_not_wait: bool) -> Option<ReadOutcome> {
    let status = process.log().status();
    let is_news = status.closed || status.next_seq - 1 > request.after;
    if !is_news && !must_not_wait {
        return None;
    }
    let page = process.log().page(request.after, request.max_bytes.unwrap_or(MAX_ANSWER_OUTPUT));
    (!page.spooled).then(|| ReadOutcome::from_memory(request, page))
}

fn close_stdin(session: &Session, id: &ProcessId) -> Result<CloseStdinResponse, ErrorObject> {
    let status = match session.process(id) {
        Lookup::Found(process) => process
            .close_stdin()
            .map_err(|error| ProcessCallError::Refused(id.clone(), error).into_error_object())?,
        Lookup::Starting => WriteStatus::Starting,
        Lookup::Unknown => WriteStatus::UnknownProcess,
    };
    Ok(CloseStdinResponse { status })
}

fn resize(session: &Session, params: ResizeParams) -> Result<Empty, ErrorObject> {
    if params.rows == 0 || params.cols == 0 {
        let message = "`rows` and `cols` must be 1 to 65535".to_owned();
        return Err(ProcessCallError::InvalidParams(message).into_error_object());
    }
    let process = find(session, &params.process_id)?;
    let size = TerminalSize { rows: params.rows, cols: params.cols };
    let refused = |error| ProcessCallError::Refused(params.process_id, error).into_error_object();
    process.resize(size).map_err(refused)?;
    Ok(Empty {})
}

fn signal(session: &Session, params: SignalParams) -> Result<SignalResponse, ErrorObject> {
    let Lookup::Found(process) = session.process(&params.process_id) else {
        return Ok(SignalResponse { delivered: false });
    };
    let refused = |error| ProcessCallError::Refused(params.process_id, error).into_error_object();
    let delivered = process.signal(params.signal, params.target).map_err(refused)?;
    Ok(SignalResponse { delivered })
}

//! HTTP requests that a server makes.

use std::sync::Arc;

use super::bodies::Body;
use super::connection::CallError;
use super::gate::require;
use super::pending::Priority;
use super::remote::RemoteBackend;
use super::session::{Live, Session};
use crate::backend::{
    BoxFuture, HttpBody, HttpClient, HttpRequest, HttpResponse, Result, StreamedHttpResponse,
};
use crate::protocol::http::{Request, RequestParams, Response};

/// The HTTP client of a server.
#[derive(Clone)]
pub struct RemoteHttpClient {
    backend: RemoteBackend,
}

impl RemoteHttpClient {
    /// A client that connects when it is used.
    #[must_use]
    pub fn new(backend: RemoteBackend) -> Self {
        Self { backend }
    }

    async fn whole(&self, request: HttpRequest) -> Result<HttpResponse> {
        let session = self.backend.session().await?;
        let params = request.into_params(session.next_number().to_string(), false);
        loop {
            let live = session.live().await?;
            match send(&live, &params).await {
                Ok(Response { status, headers, body }) => {
                    return Ok(HttpResponse { status, headers, body: body.into_inner() });
                }
                Err(CallError::NotSent) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn streamed(&self, request: HttpRequest) -> Result<StreamedHttpResponse> {
        let session = self.backend.session().await?;
        let params = request.into_params(session.next_number().to_string(), true);
        loop {
            let live = session.live().await?;
            // Known before the first piece can come.
            let body = session.bodies.expect(params.request_id.clone());
            match send(&live, &params).await {
                Ok(Response { status, headers, .. }) => {
                    let body = Box::new(RemoteBody { body, _session: Arc::clone(&session) });
                    return Ok(StreamedHttpResponse { status, headers, body });
                }
                Err(CallError::NotSent) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn send(live: &Live, params: &RequestParams) -> Result<Response, CallError> {
    if params.headers.iter().any(|header| header.value_env_var.is_some()) {
        let announced = live.info().await?.capabilities.http_header_env_vars;
        require(announced, "header values from executor variables", "httpHeaderEnvVars")
            .map_err(CallError::Failed)?;
    }
    live.connection.call::<Request>(params, Priority::Regular).await
}

impl HttpClient for RemoteHttpClient {
    fn request(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse>> {
        Box::pin(self.whole(request))
    }

    fn stream(&self, request: HttpRequest) -> BoxFuture<'_, Result<StreamedHttpResponse>> {
        Box::pin(self.streamed(request))
    }
}

/// A body on its way. It keeps the session, and so its connection.
struct RemoteBody {
    body: Body,
    _session: Arc<Session>,
}

impl HttpBody for RemoteBody {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(self.body.next())
    }
}

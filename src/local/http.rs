//! HTTP requests of this process: the server's own client, without a connection.

use std::sync::Arc;

use crate::backend::{
    BoxFuture, ExecServerError, HttpBody, HttpClient, HttpRequest, HttpResponse, Result, StreamedHttpResponse,
};
use crate::error_map::IntoErrorObject;
use crate::http_request::{self, HttpError, HttpSettings, Room, StreamedBody};
use crate::memory::MemoryBudget;
use crate::outbound::HttpClientFactory;

/// Decoded bytes of a body that is taken whole, as from a server.
const MAX_BUFFERED: u64 = 44 << 20;
/// Large bodies that are taken whole at a time.
const LARGE_BODIES: usize = 2;

/// HTTP from this process. Clones share connections.
#[derive(Debug, Clone)]
pub struct LocalHttpClient {
    client: Arc<http_request::HttpClient>,
    room: Room,
}

impl LocalHttpClient {
    /// A client with the environment and the network policy of a factory. It has no connections yet.
    #[must_use]
    pub fn new(outbound: &HttpClientFactory) -> Self {
        let settings = HttpSettings {
            max_buffered: MAX_BUFFERED,
            allowed_variables: vec!["*".to_owned()],
            deny: Vec::new(),
            outbound: outbound.clone(),
        };
        Self {
            client: Arc::new(http_request::HttpClient::new(settings)),
            room: Room::new(LARGE_BODIES, MemoryBudget::new(None)),
        }
    }

    async fn whole(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.client.send(request.into_params(String::new(), false)).await?;
        let (body, _room) = response.body.whole(MAX_BUFFERED, &self.room).await?;
        Ok(HttpResponse { status: response.status, headers: response.headers, body })
    }

    async fn streamed(&self, request: HttpRequest) -> Result<StreamedHttpResponse, HttpError> {
        let response = self.client.send(request.into_params(String::new(), true)).await?;
        let (status, headers, body) = (response.status, response.headers, response.body);
        Ok(StreamedHttpResponse { status, headers, body: Box::new(LocalBody(Some(body))) })
    }
}

impl Default for LocalHttpClient {
    fn default() -> Self {
        Self::new(&HttpClientFactory::default())
    }
}

impl HttpClient for LocalHttpClient {
    fn request(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse>> {
        Box::pin(async move { self.whole(request).await.map_err(refused) })
    }

    fn stream(&self, request: HttpRequest) -> BoxFuture<'_, Result<StreamedHttpResponse>> {
        Box::pin(async move { self.streamed(request).await.map_err(refused) })
    }
}

/// A body, until its end.
struct LocalBody(Option<StreamedBody>);

impl HttpBody for LocalBody {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            loop {
                let Some(body) = &mut self.0 else { return Ok(None) };
                match body.next().await {
                    Ok(Some(piece)) if piece.is_empty() => {}
                    Ok(Some(piece)) => return Ok(Some(piece.into())),
                    end => {
                        self.0 = None;
                        return end.map(|_| None).map_err(refused);
                    }
                }
            }
        })
    }
}

/// The error that a server would answer.
fn refused(error: HttpError) -> ExecServerError {
    error.into_error_object().into()
}

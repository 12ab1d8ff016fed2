//! What a client of a store sends and receives.

use std::{
    io, mem,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use object_store::{
    ClientOptions, Result,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpService, ReqwestConnector,
    },
};

/// Sees the answers of a store, and can lose one. The store has executed the request by then, and its
/// client does not learn the outcome. This works for encrypted connections, too.
#[derive(Clone, Debug, Default)]
pub struct Wire(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The name by which the store calls itself.
    server: Option<String>,
    /// The status of the answer to each PUT, also if it was lost.
    statuses: Vec<u16>,
    loses_next: bool,
}

impl Wire {
    pub(super) fn server(&self) -> Option<String> {
        self.state().server.clone()
    }

    /// Returns the status of the answer to each PUT since the last call.
    pub(super) fn take_statuses(&self) -> Vec<u16> {
        mem::take(&mut self.state().statuses)
    }

    /// Loses the answer to the next PUT.
    pub(super) fn lose_next_answer(&self) {
        self.state().loses_next = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder panics")
    }
}

impl HttpConnector for Wire {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Watched { client, wire: self.clone() }))
    }
}

#[derive(Debug)]
struct Watched {
    client: HttpClient,
    wire: Wire,
}

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_put = request.method() == "PUT";
        let answer = self.client.execute(request).await?;
        let mut state = self.wire.state();
        if let Some(Ok(server)) = answer.headers().get("server").map(|name| name.to_str()) {
            state.server = Some(server.to_owned());
        }
        if is_put {
            state.statuses.push(answer.status().as_u16());
            if mem::take(&mut state.loses_next) {
                let lost = io::Error::other("the doctor has lost the answer");
                // As after a connection that was closed before the answer.
                return Err(HttpError::new(HttpErrorKind::Request, lost));
            }
        }
        Ok(answer)
    }
}

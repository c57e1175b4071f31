//! Connections: so many at the same time, each with so long for the head of a request.
//!
//! Invariant: whoever sends nothing costs neither others their place for long, nor the reader its
//! own connections.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Twice the pages that are kept up to date, and far below the usual limit of 1024 descriptors.
const MOST_CONNECTIONS: usize = 512;
/// A connection that sends no whole head for so long is closed, also between two requests.
const HEAD: Duration = Duration::from_secs(10);
/// After a failure, which is mostly a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener, routes: Router) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let place = places.clone().acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD);
            let served = http.serve_connection(TokioIo::new(stream), service).await;
            // A client that goes away in the middle of something is no failure of ours.
            served.unwrap_or_default();
            drop(place);
        });
    }
}

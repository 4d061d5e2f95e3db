//! The response of an endpoint, unless that of another upstream takes its place.

use yumen_plugin::LocalResponse;

use super::{answer, pass_on, pass_on_translated};
use crate::exchange::disposition::After;
use crate::exchange::error_page;
use crate::exchange::exchange_stats::RequestBodyState;
use crate::exchange::proxied::ProxiedExchange;
use crate::runtime::clock;
use crate::upstream::attempt::{Attempt, ResponseStarted};

/// Passes a response on, or sends the page for its status. Without a page, the response is passed on.
pub(crate) async fn pass_on_or_replace<'s>(
    proxied: &mut ProxiedExchange<'_, 's>,
    attempt: Attempt<'s, ResponseStarted>,
) -> After {
    match page(proxied, &attempt).await {
        Some(page) => {
            super::note_upstream_status(proxied.ex, attempt.head().status, &proxied.flow.failed_statuses);
            let ProxiedExchange { conn, upload, flow, .. } = &mut *proxied;
            let upload = &mut upload.transfer;
            let now = clock::now();
            flow.note_upstream_end(now.mono_us);
            flow.received_bytes += upload.read_bytes();
            flow.body = if upload.is_read() { RequestBodyState::Read } else { RequestBodyState::Partial };
            upload.discard_frame(&mut conn.inbox);
            upload.recycle(&conn.worker.buffers);
            drop(attempt.finish(now).discard(&conn.worker.upstream));
            // The page is final: its own status is not looked up again.
            proxied.ex.response.errors = None;
            answer(proxied.conn, proxied.ex, proxied.chains, page, proxied.flow).await
        }
        None if proxied.ex.response.translator.is_some() => pass_on_translated(proxied, attempt).await,
        None => pass_on(proxied, attempt).await,
    }
}

async fn page<'s>(
    proxied: &ProxiedExchange<'_, 's>,
    attempt: &Attempt<'s, ResponseStarted>,
) -> Option<LocalResponse> {
    let status = attempt.head().status;
    let rules = error_page::rules_for(proxied.ex, status).filter(|_| !attempt.is_upgrade())?;
    error_page::page(&proxied.conn.worker, proxied.ex, rules.pages.as_ref()?, status).await
}

//! SIGINT and SIGTERM: ends the run in order, so that no started process remains.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs the signal handling.
pub(super) fn listen() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let kinds = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
            let (Ok(mut interrupt), Ok(mut terminate)) = kinds else { return };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                // A second signal exits at once.
                if INTERRUPTED.swap(true, Ordering::AcqRel) {
                    std::process::exit(130);
                }
            }
        });
    });
    Ok(())
}

/// Whether a signal was received.
pub(super) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

/// Fails if a signal was received.
pub(super) fn check() -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

//! SIGINT and SIGTERM: the run ends in an orderly way, so that nothing it started stays behind.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Listens for the signals from now on.
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
                // the second time is meant
                if INTERRUPTED.swap(true, Ordering::AcqRel) {
                    std::process::exit(130);
                }
            }
        });
    });
    Ok(())
}

/// Whether a signal came.
pub(super) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

/// An error where a signal came.
pub(super) fn check() -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

//! Reports and comparisons of synthetic runs: content, well-formed markup, and layout in Chromium.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "reports/browser.rs"]
mod browser;
#[path = "reports/comparisons.rs"]
mod comparisons;
#[path = "reports/pages.rs"]
mod pages;
#[path = "reports/results.rs"]
mod results;
#[path = "reports/synthetic.rs"]
mod synthetic;

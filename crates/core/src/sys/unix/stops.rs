//! Named points at which a process stops itself (SIGSTOP), for tests that kill processes at each step. Only with the
//! cargo feature `stops`, which no release build has.

/// Stops here if HOLDFAST_STOP names this point.
#[cfg(feature = "stops")]
pub fn stop(point: &str) {
    if std::env::var_os("HOLDFAST_STOP").is_some_and(|name| name == point) {
        let _ = super::signals::stop_ourselves();
    }
}

/// Without the feature: nothing.
#[cfg(not(feature = "stops"))]
pub fn stop(_point: &str) {}

/// The environment of a helper that is started with an empty one, with HOLDFAST_STOP.
#[cfg(feature = "stops")]
pub fn passed_on() -> Vec<std::ffi::CString> {
    let name = std::env::var("HOLDFAST_STOP").unwrap_or_default();
    std::ffi::CString::new(format!("HOLDFAST_STOP={name}")).into_iter().collect()
}

/// Without the feature: nothing.
#[cfg(not(feature = "stops"))]
pub fn passed_on() -> Vec<std::ffi::CString> {
    Vec::new()
}

//! Sets up linking against a host that provides N-API.

fn main() {
    napi_build::setup();
}

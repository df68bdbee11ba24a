//! The load client of the demo; see the library's documentation.

use clap::Parser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    demo_client::run(demo_client::ClientArgs::parse()).await
}

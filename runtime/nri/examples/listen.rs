//! Registers with the runtime that listens on a socket, and prints its events:
//! `cargo run -p qosm-nri --example listen -- /var/run/nri/nri.sock`.

use std::time::Duration;

use qosm_nri::{PluginOptions, RuntimeEvent, serve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::args().nth(1).ok_or("which socket?")?;
    let options = PluginOptions {
        name: "listen".to_owned(),
        index: "99".to_owned(),
        budget: Duration::from_millis(50),
        registration: Duration::from_secs(5),
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let connection = tokio::net::UnixStream::connect(socket).await?;
        let Err(ended) = serve(connection, &options, |event| match event {
            RuntimeEvent::Synchronized(running) => println!("{} containers run", running.len()),
            other => println!("{other:?}"),
        })
        .await;
        println!("{ended}");
        Ok(())
    })
}

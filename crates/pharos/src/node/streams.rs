//! Upstream questions over connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long one question over a connection may take in all.
const TIME_MAX: Duration = Duration::from_secs(3);

/// Asks `to` one question over a connection of its own.
pub async fn exchange(to: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    timeout(TIME_MAX, async {
        let mut stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let mut message = Vec::with_capacity(2 + question.len());
        message.extend((question.len() as u16).to_be_bytes());
        message.extend_from_slice(question);
        stream.write_all(&message).await?;
        let len = stream.read_u16().await?;
        let mut answer = vec![0; len.into()];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    })
    .await?
}

//! Chitchat's messages over the datagrams of a [`GossipSocket`].

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chitchat::transport::{Socket, Transport};
use chitchat::{ChitchatMessage, Deserializable, Serializable};
use tokio::time::sleep;

/// Octets of a message at the most; a socket adds what it needs to
/// authenticate it, and the whole must fit into a datagram.
pub const MESSAGE_LEN_MAX: usize = 65_000;
/// How long nothing is received after an error: it may be there to stay.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Datagrams to and from other nodes. Whatever it gives was sent by somebody
/// who knows the cluster's secret: gossip itself believes everybody.
pub trait GossipSocket: std::fmt::Debug + Send + Sync + 'static {
    /// Sends one message of at most [`MESSAGE_LEN_MAX`] octets.
    fn send(&self, to: SocketAddr, octets: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits for a message, writes it to `buffer`, and says its length and the
    /// address to answer to. Dropping the future loses no message.
    fn receive(
        &self,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<(usize, SocketAddr)>> + Send;
}

/// A socket as chitchat wants it.
#[derive(Debug)]
pub struct Line<S> {
    pub socket: Arc<S>,
}

#[async_trait]
impl<S: GossipSocket> Transport for Line<S> {
    async fn open(&self, _listen: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let buffer = vec![0; MESSAGE_LEN_MAX].into_boxed_slice();
        Ok(Box::new(LineEnd { socket: self.socket.clone(), buffer }))
    }
}

#[derive(Debug)]
struct LineEnd<S> {
    socket: Arc<S>,
    buffer: Box<[u8]>,
}

#[async_trait]
impl<S: GossipSocket> Socket for LineEnd<S> {
    /// Datagrams get lost; that this one could not even be sent is no news.
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        let octets = message.serialize_to_vec();
        if octets.len() > MESSAGE_LEN_MAX {
            tracing::debug!("gossip to {to}: {} octets are too many to send", octets.len());
        } else if let Err(error) = self.socket.send(to, &octets).await {
            tracing::debug!("gossip to {to}: {error}");
        }
        Ok(())
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        loop {
            match self.socket.receive(&mut self.buffer).await {
                Ok((len, from)) => {
                    let mut octets = self.buffer.get(..len).unwrap_or_default();
                    match ChitchatMessage::deserialize(&mut octets) {
                        Ok(message) => return Ok((from, message)),
                        Err(error) => tracing::debug!("gossip from {from}: {error}"),
                    }
                }
                Err(error) => {
                    tracing::debug!("gossip: {error}");
                    sleep(ERROR_PAUSE).await;
                }
            }
        }
    }
}

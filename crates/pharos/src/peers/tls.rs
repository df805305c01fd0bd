//! TLS between nodes: both sides prove that they hold the cluster's key.
//!
//! An Ed25519 key pair is derived from the cluster's key, so all nodes have the
//! same. A node shows its public half as it is (RFC 7250), not in a
//! certificate: there is nobody to issue one, nothing in it to read, and no day
//! on which it would expire. Either side accepts that one public key alone, and
//! only with a signature over this handshake.
//!
//! The client names the node it wants, and no other node answers to that name.
//! Else somebody in between could lead the connection to another node, or back
//! to where it came from, and all would seem well.

use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use tokio_rustls::rustls;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_eddsa_type};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use super::NodeTag;
use super::key::ClusterKey;

/// The label that the key pair is derived under.
const LABEL: &str = "tls key pair";
/// HTTP/2, which gRPC speaks, and nothing else (RFC 9113, 3.2).
const PROTOCOL: &[u8] = b"h2";

/// What a node calls others with.
pub fn client_config(key: &ClusterKey) -> Arc<ClientConfig> {
    let identity = Identity::new(key);
    let mut config = ClientConfig::builder_with_provider(identity.provider.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider knows TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(identity.verifier())
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.pair)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// What the node `own` answers others with.
pub fn server_config(key: &ClusterKey, own: NodeTag) -> Arc<ServerConfig> {
    let identity = Identity::new(key);
    let mut config = ServerConfig::builder_with_provider(identity.provider.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider knows TLS 1.3")
        .with_client_cert_verifier(identity.verifier())
        .with_cert_resolver(Arc::new(OwnName { name: name_of(own), pair: identity.pair }));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// The name that a client asks for the node `of` by.
pub fn server_name(of: NodeTag) -> ServerName<'static> {
    ServerName::try_from(name_of(of)).expect("a tag is a label")
}

/// A name that no resolver knows (RFC 9476).
fn name_of(node: NodeTag) -> String {
    format!("{node}.pharos.alt")
}

/// The key pair that all nodes of a cluster have.
struct Identity {
    provider: Arc<CryptoProvider>,
    pair: Arc<CertifiedKey>,
}

impl Identity {
    fn new(key: &ClusterKey) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&key.derive(LABEL));
        let document = pair.expect("any 32 octets are a seed").to_pkcs8();
        let document = document.expect("a pair can be encoded");
        let signing = any_eddsa_type(&PrivatePkcs8KeyDer::from(document.as_ref()));
        let signing = signing.expect("what was encoded can be read");
        let public = signing.public_key().expect("a pair has a public half").to_vec();
        // A public key stands where TLS has certificates.
        let pair = CertifiedKey::new(vec![CertificateDer::from(public)], signing);
        Identity { provider: Arc::new(default_provider()), pair: Arc::new(pair) }
    }

    fn verifier(&self) -> Arc<OwnKey> {
        Arc::new(OwnKey { public: self.pair.cert[0].clone(), provider: self.provider.clone() })
    }
}

/// Answers to one name.
#[derive(Debug)]
struct OwnName {
    name: String,
    pair: Arc<CertifiedKey>,
}

impl ResolvesServerCert for OwnName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        (hello.server_name() == Some(&self.name)).then(|| self.pair.clone())
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts one public key.
#[derive(Debug)]
struct OwnKey {
    public: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl OwnKey {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match *shown == self.public {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(shown)?;
        let public = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &public, signed, algorithms)
    }
}

/// TLS 1.2 is never spoken; the traits ask for it all the same.
fn older_than_accepted() -> Error {
    Error::General("accepted: TLS 1.3".into())
}

impl ServerCertVerifier for OwnKey {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(older_than_accepted())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for OwnKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(older_than_accepted())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    /// Lets a client and the server of node a talk: what the server heard, or
    /// which side refused first.
    async fn talk(
        client: Arc<ClientConfig>,
        wanted: &str,
        server: Arc<ServerConfig>,
    ) -> Result<Vec<u8>, io::Error> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = server_name(NodeTag::of(wanted));
        let call = async {
            let mut stream = TlsConnector::from(client).connect(name, near).await?;
            stream.write_all(b"hello").await?;
            stream.shutdown().await
        };
        let answer = async {
            let mut stream = TlsAcceptor::from(server).accept(far).await?;
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(PROTOCOL));
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await?;
            Ok(heard)
        };
        let (called, heard) = tokio::join!(call, answer);
        // The server's word counts: a client is done before it was checked.
        heard.or_else(|error| called.and(Err(error)))
    }

    fn server(key: &ClusterKey) -> Arc<ServerConfig> {
        server_config(key, NodeTag::of("a"))
    }

    #[tokio::test]
    async fn nodes_of_one_cluster_talk() {
        let key = ClusterKey::draw();
        assert_eq!(talk(client_config(&key), "a", server(&key)).await.unwrap(), b"hello");
    }

    #[tokio::test]
    async fn another_key_is_refused() {
        let (one, other) = (ClusterKey::draw(), ClusterKey::draw());
        talk(client_config(&one), "a", server(&other)).await.unwrap_err();
    }

    /// Even a client that does not care whom it talks to.
    #[tokio::test]
    async fn a_client_with_another_key_is_refused_by_the_server() {
        let key = ClusterKey::draw();
        let stranger = Identity::new(&ClusterKey::draw());
        let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(stranger.pair));
        let error = talk(gullible(&key, Some(resolver)), "a", server(&key)).await.unwrap_err();
        assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    }

    #[tokio::test]
    async fn a_client_that_shows_no_key_is_refused() {
        let key = ClusterKey::draw();
        talk(gullible(&key, None), "a", server(&key)).await.unwrap_err();
    }

    /// The public key is no secret to those who were told it: it must be
    /// proved.
    #[tokio::test]
    async fn a_client_that_cannot_sign_is_refused() {
        let key = ClusterKey::draw();
        let (own, stranger) = (Identity::new(&key), Identity::new(&ClusterKey::draw()));
        let forged = CertifiedKey::new(own.pair.cert.clone(), stranger.pair.key.clone());
        let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::new(forged)));
        let error = talk(gullible(&key, Some(resolver)), "a", server(&key)).await.unwrap_err();
        assert!(error.to_string().contains("BadSignature"), "{error}");
    }

    /// A client of the cluster that holds the key of whoever `resolver` is.
    fn gullible(
        key: &ClusterKey,
        resolver: Option<Arc<AlwaysResolvesClientRawPublicKeys>>,
    ) -> Arc<ClientConfig> {
        let identity = Identity::new(key);
        let builder = ClientConfig::builder_with_provider(identity.provider.clone())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(identity.verifier());
        let mut config = match resolver {
            Some(resolver) => builder.with_client_cert_resolver(resolver),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Arc::new(config)
    }

    #[tokio::test]
    async fn a_node_answers_to_its_own_name_alone() {
        let key = ClusterKey::draw();
        talk(client_config(&key), "b", server(&key)).await.unwrap_err();
    }

    #[tokio::test]
    async fn what_is_not_tls_is_refused() {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let config = server(&ClusterKey::draw());
        let error = TlsAcceptor::from(config).accept(far).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn nothing_secret_prints() {
        let key = ClusterKey::draw();
        let seed = format!("{:?}", key.derive(LABEL));
        let text = format!("{:?}{:?}", client_config(&key), server(&key));
        assert!(!text.contains(seed.trim_matches(['[', ']'])), "{text}");
    }
}

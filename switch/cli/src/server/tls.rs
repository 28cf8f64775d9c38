// SPDX-License-Identifier: Apache-2.0
//! TLS of the server: its files, which may change while it serves, and the names that clients' certificates show.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use apswitch_dataplane::client_log;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio_rustls::server::TlsStream;
use x509_parser::extensions::GeneralName;

/// A client that does not finish its handshake is not waited for.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Interval at which the files are polled.
const LOOK: Duration = Duration::from_secs(2);
/// HTTP/2.
const PROTOCOL: &[u8] = b"h2";

/// PEM files of the server's certificate and key.
#[derive(Clone, Debug)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Mutual TLS: only clients with a certificate of this authority are let in.
    pub client_ca: Option<PathBuf>,
}

/// Time and size of a file, by which a replaced one is known.
type Stamp = Option<(SystemTime, u64)>;

impl Tls {
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten()
    }

    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        self.files().map(stamp).collect()
    }

    /// Loads the files. The error names the option, or the files.
    fn config(&self) -> Result<Arc<ServerConfig>, String> {
        let read = |option: &str, path: &Path| {
            std::fs::read(path).map_err(|e| format!("{option} {}: {e}: give a PEM file", path.display()))
        };
        let (cert, key) = (read("--tls-cert", &self.cert)?, read("--tls-key", &self.key)?);
        let client_ca = self.client_ca.as_ref().map(|path| read("--tls-client-ca", path)).transpose()?;
        let made = self.server_config(&cert, &key, client_ca.as_deref());
        made.map_err(|reason| {
            let names: Vec<String> = self.files().map(|path| path.display().to_string()).collect();
            let names = names.join(", ");
            format!("TLS with {names}: {reason}: give a certificate, its key and the clients' authority as PEM")
        })
    }

    fn server_config(&self, cert: &[u8], key: &[u8], client_ca: Option<&[u8]>) -> Result<Arc<ServerConfig>, String> {
        let certificates = |pem| {
            let all: Vec<_> =
                CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
            if all.is_empty() { Err("there is no certificate".to_string()) } else { Ok(all) }
        };
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(pem)? {
                    roots.add(root).map_err(|e| e.to_string())?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|e| e.to_string())?)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| e.to_string())?;
        let mut config = builder.with_single_cert(certificates(cert)?, key).map_err(|e| e.to_string())?;
        config.alpn_protocols.push(PROTOCOL.to_vec());
        Ok(Arc::new(config))
    }
}

/// TLS configuration of new connections. Open connections stay as they are when it changes.
pub struct Secured {
    tls: Tls,
    config: RwLock<Arc<ServerConfig>>,
    /// Stamps of the files at the last poll.
    seen: Mutex<Vec<Stamp>>,
}

impl Secured {
    pub fn new(tls: Tls) -> Result<Secured, String> {
        let (seen, config) = (Mutex::new(tls.stamps()), RwLock::new(tls.config()?));
        Ok(Secured { tls, config, seen })
    }

    /// Takes over what the files say now; files that make no sense are said, and change nothing.
    pub fn reload(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = self.tls.stamps();
        match self.tls.config() {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
                tracing::info!("new connections are secured with what {} holds now", self.tls.cert.display());
            }
            Err(reason) => tracing::error!("{reason}; keeping the previous certificate"),
        }
    }

    /// Reloads whenever a file changes.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let changed = *self.seen.lock().unwrap_or_else(PoisonError::into_inner) != self.tls.stamps();
            if changed {
                self.reload();
            }
        }
    }

    /// The handshake, and the names that the client's certificate shows.
    pub async fn accept(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Option<(TlsStream<TcpStream>, Vec<String>)> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        match tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => {
                let names = names(stream.get_ref().1);
                Some((stream, names))
            }
            Ok(Err(error)) => {
                client_log::log_address(peer, format_args!("no TLS handshake: {error}"));
                None
            }
            Err(_) => {
                client_log::log_address(peer, format_args!("no TLS handshake within {} s", HANDSHAKE.as_secs()));
                None
            }
        }
    }
}

/// Common names and alternative names (DNS, e-mail, URI) of the client's certificate (RFC 5280, 4.1.2.6 and 4.2.1.6).
fn names(connection: &ServerConnection) -> Vec<String> {
    let certificate = connection.peer_certificates().and_then(|chain| chain.first());
    let Some(Ok((_, parsed))) = certificate.map(|der| x509_parser::parse_x509_certificate(der)) else {
        return Vec::new();
    };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = common.map(str::to_string).collect();
    if let Ok(Some(alternative)) = parsed.subject_alternative_name() {
        names.extend(alternative.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
                Some(name.to_string())
            }
            _ => None,
        }));
    }
    names
}

//! The handshake of a client, with the certificates that a program gives.
//!
//! Invariant: a server whose certificate no authority of ours has signed, or which is not for the
//! host that was asked for, gets nothing from us. The cryptography is named, not taken from the
//! process, so that another crate of the program cannot change or remove it.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
pub(crate) use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName,
};
use tokio_rustls::rustls::{self, AlertDescription, ClientConfig, RootCertStore};

use super::Tls;

/// What a connection needs for its handshake. It is read once.
#[derive(Clone)]
pub(crate) struct TlsClient(Arc<ClientConfig>);

/// Without certificates.
impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient")
    }
}

impl TlsClient {
    /// Says why it refuses certificates or a key, and shows none of them.
    pub(crate) fn new(tls: &Tls) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let (roots, lists) = authorities(&tls.ca)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone())
            .with_crls(lists)
            .build()
            .map_err(|error| format!("no authority to trust: {error}"))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_webpki_verifier(verifier);
        let config = match &tls.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = chain(certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|_| "no private key of the client")?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("not a key for the client's certificate: {error}"))?
            }
        };
        Ok(Self(config.into()))
    }

    /// Proves to each other who is at both ends, as far as each side asks for it.
    pub(crate) async fn handshake<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connector = TlsConnector::from(Arc::clone(&self.0));
        connector.connect(name, stream).await
    }
}

fn authorities(
    pem: &str,
) -> Result<(RootCertStore, Vec<CertificateRevocationListDer<'static>>), String> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
    let certificates = certificates.collect::<Result<Vec<_>, _>>();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.map_err(|_| "the authorities are not PEM text")?);
    if roots.is_empty() {
        return Err("no authority to trust in the PEM text".into());
    }
    let lists = CertificateRevocationListDer::pem_slice_iter(pem.as_bytes());
    let lists = lists.collect::<Result<_, _>>();
    Ok((roots, lists.map_err(|_| "a revocation list is broken")?))
}

fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err("no certificate of the client in the PEM text".into()),
    }
}

/// What TLS has refused, if it is the cause of an error.
pub(crate) fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // As the client crate of Redis shares it.
        let shared = error.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        let error = shared.map_or(error, |shared| &**shared as _);
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let refused = inner
            .and_then(|inner| inner.downcast_ref())
            .or_else(|| error.downcast_ref::<rustls::Error>());
        if let Some(refused) = refused {
            return Some(words(refused));
        }
        cause = error.source();
    }
    None
}

/// With the way out, where there is one.
fn words(refused: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidMessage};
    let way_out = match refused {
        InvalidMessage(_) => ": there is no TLS at that port",
        AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::HandshakeFailure,
        ) => ": the server wants a certificate of the client that it trusts",
        _ => "",
    };
    format!("no TLS session ({refused}){way_out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tls_refuses_is_found_below_other_errors() {
        let refused = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        let words = refusal(&io::Error::new(io::ErrorKind::InvalidData, refused)).unwrap();

        assert!(words.contains("certificate of the client"), "{words}");
        assert_eq!(refusal(&io::Error::other("closed")), None);
    }
}

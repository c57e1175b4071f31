//! A real server that speaks TLS, with certificates that are made here.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::ports;
use crate::zookeeper::Servers;

/// An authority, and what it has signed.
pub struct Authority {
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for this machine, and its key.
    pub fn sign(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server that wants certificates of its clients.
pub struct Secure {
    pub authority: Authority,
    pub address: String,
    pub folder: TempDir,
    _servers: Servers,
}

impl Secure {
    pub async fn start() -> Self {
        tokio::task::spawn_blocking(|| {
            let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
            let (certificate, key) = authority.sign();
            let own = written(folder.path(), "server.pem", &(key + &certificate));
            let ca = written(folder.path(), "ca.pem", &authority.certificate);
            let port = ports::free(1).unwrap()[0];
            let more = format!(
                "secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
                 ssl.clientAuth=need\n",
                own.display(),
                ca.display()
            );
            let directly = |members: &[_]| Ok(vec![members.to_vec(); members.len()]);
            let servers = Servers::start_linked(1, &[], &more, directly).unwrap();
            Self {
                authority,
                address: format!("127.0.0.1:{port}"),
                folder,
                _servers: servers,
            }
        })
        .await
        .unwrap()
    }
}

pub fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file
}

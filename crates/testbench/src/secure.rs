//! Real servers that speak TLS, with certificates that are made here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::daemon::{self, Daemon, own};
use crate::eventually;
use crate::ports::{self, Reserved};
use crate::zookeeper::Servers;

const PATIENCE: Duration = Duration::from_secs(60);

/// A certificate and its key.
pub type Identity = (String, String);

/// An authority, and what it has signed.
pub struct Authority {
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Another one than that of what it signs, which would be thought to have signed itself.
        let name = uuid::Uuid::new_v4().to_string();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for this machine, and its key.
    pub fn sign(&self) -> Identity {
        self.sign_for(&["localhost", "127.0.0.1"], 4000)
    }

    /// For these names, until that year.
    pub fn sign_for(&self, names: &[&str], until: i32) -> Identity {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(until, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A Redis server, or with `--sentinel` a sentinel, that speaks nothing but TLS. It wants
/// certificates of its clients if `more` says so.
pub fn redis(authority: &Authority, own: &Identity, more: &[&str]) -> Result<Daemon, String> {
    let (own, ca) = (own.clone(), authority.certificate.clone());
    let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
    let recipe = move |folder: &Path, port: u16| {
        let (certificate, key) = &own;
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--port", "0"])
            .args(["--tls-port", &port.to_string(), "--dir"])
            .arg(folder)
            .arg("--tls-cert-file")
            .arg(written(folder, "own.pem", certificate))
            .arg("--tls-key-file")
            .arg(written(folder, "own.key", key))
            .arg("--tls-ca-cert-file")
            .arg(written(folder, "ca.pem", &ca))
            .args(&more);
        Ok(command)
    };
    Daemon::start("redis-server", Box::new(recipe))
}

/// A PostgreSQL server that can speak TLS, and lets in as the line of its `pg_hba.conf` says.
pub fn postgres(authority: &Authority, ours: &Identity, lets_in: &str) -> (Daemon, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    own("postgres", folder.path()).unwrap();
    let file = |setting: &str, text: &str| {
        let file = written(folder.path(), setting, text);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        own("postgres", &file).unwrap();
        format!("{setting}={}", file.display())
    };
    let settings = [
        "ssl=on".to_owned(),
        file("ssl_cert_file", &ours.0),
        file("ssl_key_file", &ours.1),
        file("ssl_ca_file", &authority.certificate),
        file("hba_file", &format!("{lets_in}\n")),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    (daemon::postgres(&settings).unwrap(), folder)
}

/// A server that wants certificates of its clients.
pub struct Secure {
    pub authority: Authority,
    pub address: String,
    pub folder: TempDir,
    _port: Reserved,
    _servers: Servers,
}

impl Secure {
    pub async fn start() -> Self {
        let starting = tokio::task::spawn_blocking(Self::serving);
        let server = starting.await.unwrap();
        // It serves at its other port first.
        let listens = || async { TcpStream::connect(&server.address).await.is_ok() };
        eventually("the server listens for TLS", PATIENCE, listens).await;
        server
    }

    fn serving() -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let (certificate, key) = authority.sign();
        let own = written(folder.path(), "server.pem", &(key + &certificate));
        let ca = written(folder.path(), "ca.pem", &authority.certificate);
        let port = ports::reserve(1).unwrap().remove(0);
        let more = format!(
            "secureClientPort={}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
             ssl.clientAuth=need\n",
            port.number,
            own.display(),
            ca.display()
        );
        let directly = |members: &[_]| Ok(vec![members.to_vec(); members.len()]);
        let servers = Servers::start_linked(1, &[], &more, directly).unwrap();
        Self {
            authority,
            address: format!("127.0.0.1:{}", port.number),
            folder,
            _port: port,
            _servers: servers,
        }
    }
}

pub fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file
}

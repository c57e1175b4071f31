//! Who is let in: by the name of the server, by a token or a proxy, and for a change by where the
//! request comes from.
//!
//! Invariant: a page of another origin reads nothing and changes nothing, also if its name leads to
//! this address (DNS rebinding). Beyond this machine nobody comes in without a token or a proxy.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, StatusCode, Uri};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::args::Ui;
use crate::failure::Failure;
use crate::files;

/// A script that reads this header of ours is of our origin, or is no browser.
pub(super) const CSRF: &str = "x-lockkeeper-token";
const SITE: &str = "sec-fetch-site";
/// The shortest token.
const SHORTEST: usize = 16;

pub(super) struct Gate {
    asks: Asks,
    /// Names beside IP addresses and localhost.
    hosts: Vec<String>,
    /// Browsers do not tell ports apart: two servers of one host would replace each other's cookie.
    cookie_name: String,
    /// Of this process: what a browser has after a login.
    cookie: String,
    /// Of this process: what a page must know to change something.
    csrf: String,
}

/// What is asked of those who come.
enum Asks {
    Nothing,
    Token(String),
    Header(HeaderName),
}

/// Why somebody is not let in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Host(String),
    Login,
    Proxy(String),
    Origin,
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Login => StatusCode::UNAUTHORIZED,
            Self::Host(_) | Self::Proxy(_) | Self::Origin => StatusCode::FORBIDDEN,
        }
    }

    pub(super) fn why(&self) -> String {
        match self {
            Self::Host(name) => {
                format!("{name:?} is no name of this server: `--host NAME` adds one")
            }
            Self::Login => "give the token: `Authorization: Bearer TOKEN`".into(),
            Self::Proxy(header) => format!("the proxy has not set {header}"),
            Self::Origin => {
                format!("changes need {CSRF} of /api/about, and the origin of the page itself")
            }
        }
    }
}

impl Gate {
    /// Reads the token, and refuses to be open to other machines.
    pub(super) fn of(order: &Ui) -> Result<Self, Failure> {
        let asks = match (&order.token_file, &order.proxy_header) {
            (Some(file), _) => {
                let text = files::secret(file)?;
                let token = text.lines().next().unwrap_or_default().trim();
                if token.len() < SHORTEST {
                    return Err(Failure::WeakToken { file: file.clone() });
                }
                Asks::Token(token.to_owned())
            }
            (None, Some(header)) => match HeaderName::try_from(header) {
                Ok(header) => Asks::Header(header),
                Err(_) => unreachable!("the command line has no other ones"),
            },
            (None, None) if !order.listen.ip().to_canonical().is_loopback() => {
                return Err(Failure::Open {
                    address: order.listen,
                });
            }
            (None, None) => Asks::Nothing,
        };
        let hosts = order.hosts.iter().map(|host| host.to_ascii_lowercase());
        Ok(Self {
            asks,
            hosts: hosts.collect(),
            cookie_name: "lockkeeper_ui".into(),
            cookie: Uuid::new_v4().simple().to_string(),
            csrf: Uuid::new_v4().simple().to_string(),
        })
    }

    /// For a server that listens at this port.
    pub(super) fn at(self, port: u16) -> Self {
        let cookie_name = format!("{}_{port}", self.cookie_name);
        Self {
            cookie_name,
            ..self
        }
    }

    pub(super) fn csrf(&self) -> &str {
        &self.csrf
    }

    pub(super) fn asks_for_a_token(&self) -> bool {
        matches!(self.asks, Asks::Token(_))
    }

    /// Whether the browser meant this server. A page of another name that leads here has that name
    /// in its requests. No page has an IP address in place of its own name.
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = text(headers, &HOST);
        let Some(name) = host.and_then(name_of) else {
            return Err(Refusal::Host(host.unwrap_or_default().to_owned()));
        };
        let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if is_address || name == "localhost" || self.hosts.contains(&name) {
            return Ok(());
        }
        Err(Refusal::Host(name))
    }

    /// Whether the one who asks has the token, the cookie of a login, or the header of the proxy.
    pub(super) fn check_access(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.asks {
            Asks::Nothing => Ok(()),
            Asks::Token(token) => {
                let bearer =
                    text(headers, &AUTHORIZATION).and_then(|it| it.strip_prefix("Bearer "));
                let has_token = bearer.is_some_and(|bearer| is_same(bearer.trim(), token));
                let cookies = headers.get_all(COOKIE).iter();
                let cookies = cookies.filter_map(|it| it.to_str().ok());
                let mut cookies = cookies.flat_map(|cookies: &str| cookies.split(';'));
                let has_cookie = cookies.any(|cookie| {
                    let parts = cookie.trim().split_once('=');
                    parts.is_some_and(|(name, value)| {
                        name == self.cookie_name && is_same(value, &self.cookie)
                    })
                });
                (has_token || has_cookie)
                    .then_some(())
                    .ok_or(Refusal::Login)
            }
            Asks::Header(header) => match headers.get(header) {
                Some(user) if !user.is_empty() => Ok(()),
                _ => Err(Refusal::Proxy(header.to_string())),
            },
        }
    }

    /// Whether a change was asked for by our own page, or by a script that asked for our word.
    pub(super) fn check_change(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let csrf = headers.get(CSRF).and_then(|it| it.to_str().ok());
        let knows = csrf.is_some_and(|csrf| is_same(csrf, &self.csrf));
        let host = text(headers, &HOST);
        let origin = text(headers, &ORIGIN);
        let is_ours = origin.is_none_or(|origin| {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            authority.is_some() && authority == host
        });
        let site = headers.get(SITE).and_then(|site| site.to_str().ok());
        let is_near = site.is_none_or(|site| site == "same-origin");
        (knows && is_ours && is_near)
            .then_some(())
            .ok_or(Refusal::Origin)
    }

    /// The cookie of a login, if this is the token.
    pub(super) fn login(&self, given: &str) -> Option<String> {
        match &self.asks {
            Asks::Token(token) if is_same(given.trim(), token) => Some(format!(
                "{}={}; Path=/; HttpOnly; SameSite=Strict",
                self.cookie_name, self.cookie
            )),
            _ => None,
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The name or address in `name:port`, in lower case.
fn name_of(host: &str) -> Option<String> {
    let uri: Uri = format!("http://{host}/").parse().ok()?;
    let authority = uri.authority()?;
    let is_plain = !authority.as_str().contains('@') && authority.as_str() == host;
    is_plain.then(|| authority.host().to_ascii_lowercase())
}

/// In the same time, wherever they differ.
fn is_same(given: &str, wanted: &str) -> bool {
    given.as_bytes().ct_eq(wanted.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(asks: Asks) -> Gate {
        Gate {
            asks,
            hosts: vec!["locks.example.com".into()],
            cookie_name: "lockkeeper_ui_1".into(),
            cookie: "cookie".into(),
            csrf: "csrf".into(),
        }
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let each = lines.iter();
        each.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn names_that_are_not_ours_are_refused_whatever_the_port() {
        let gate = gate(Asks::Nothing);
        let check = |host: &str| gate.check_host(&headers(&[("host", host)])).is_ok();

        for ours in [
            "localhost",
            "LOCALHOST:7411",
            "127.0.0.1:7411",
            "[::1]:7411",
            "10.1.2.3",
            "locks.example.com",
            "Locks.Example.Com:443",
        ] {
            assert!(check(ours), "{ours}");
        }
        for other in [
            "evil.example",
            "evil.example:7411",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil.example@localhost",
            "",
            "a b",
        ] {
            assert!(!check(other), "{other}");
        }
        assert!(gate.check_host(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_token_comes_as_a_bearer_or_as_the_cookie_of_a_login() {
        let gate = gate(Asks::Token("0123456789abcdef".into()));
        let check = |name, value: &str| gate.check_access(&headers(&[(name, value)]));

        assert_eq!(check("authorization", "Bearer 0123456789abcdef"), Ok(()));
        assert_eq!(check("cookie", "a=b; lockkeeper_ui_1=cookie"), Ok(()));
        for (name, value) in [
            ("authorization", "Bearer 0123456789abcdee"),
            ("authorization", "Basic 0123456789abcdef"),
            ("authorization", "Bearer "),
            ("cookie", "lockkeeper_ui_1=0123456789abcdef"),
            ("cookie", "lockkeeper_ui_2=cookie"),
            ("cookie", "a=cookie"),
            ("host", "localhost"),
        ] {
            assert_eq!(check(name, value), Err(Refusal::Login), "{name}: {value}");
        }
        assert!(gate.login("wrong").is_none());
        let cookie = gate.login(" 0123456789abcdef\n").unwrap();
        assert!(cookie.starts_with("lockkeeper_ui_1=cookie;"), "{cookie}");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
    }

    #[test]
    fn a_change_needs_our_word_and_our_origin() {
        let gate = gate(Asks::Nothing);
        let check = |more: &[(&'static str, &str)]| {
            let ours = [("host", "localhost:7411")];
            gate.check_change(&headers(&[&ours[..], more].concat()))
                .is_ok()
        };
        let word = (CSRF, "csrf");

        assert!(check(&[word]));
        assert!(check(&[word, ("origin", "http://localhost:7411")]));
        assert!(check(&[word, (SITE, "same-origin")]));
        assert!(!check(&[]));
        assert!(!check(&[(CSRF, "guess")]));
        assert!(!check(&[word, ("origin", "http://evil.example")]));
        assert!(!check(&[word, ("origin", "http://localhost:80")]));
        assert!(!check(&[word, ("origin", "null")]));
        assert!(!check(&[word, (SITE, "cross-site")]));
        assert!(!check(&[word, (SITE, "same-site")]));
    }

    #[test]
    fn a_proxy_must_set_its_header() {
        let gate = gate(Asks::Header(HeaderName::from_static("x-user")));

        assert!(gate.check_access(&headers(&[("x-user", "ann")])).is_ok());
        assert!(gate.check_access(&headers(&[("x-user", "")])).is_err());
        assert!(gate.check_access(&HeaderMap::new()).is_err());
    }
}

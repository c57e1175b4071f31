//! The options of the connection as they are in force, for `config`. (pure)
//!
//! Invariant: no value shows a secret.

use clap::ArgMatches;
use lockkeeper::Acl;

use super::place::Place;
use super::settings::Origin;
use super::told::Told;
use super::tree;

/// The value of an option, without secrets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InForce {
    pub(crate) option: String,
    /// None if it has no value.
    pub(crate) value: Option<String>,
    pub(crate) origin: Origin,
}

/// The options of the connection as they are in force. `all` has the words of files, too.
pub(super) fn in_force(told: &Told<'_>, all: &ArgMatches, place: &Place) -> Vec<InForce> {
    let stronger = |one, other| told.origin(one).rank() > told.origin(other).rank();
    // The file of a credential wins if both are said in one place.
    let credential = if stronger("auth", "auth_file") {
        "auth"
    } else {
        "auth_file"
    };
    let is_said = |id| told.origin(id) != Origin::Default;
    let mut in_force = Vec::new();
    for option in tree::connection() {
        let id = option.get_id().as_str();
        let is_other = ["auth", "auth_file"].contains(&id) && id != credential;
        if id == "zk" || (is_other && is_said(credential)) {
            continue;
        }
        let value = match id {
            "servers" => Some(place.without_secrets()),
            "auth" => text(all, id).map(|text| scheme_of(&text)),
            "acl" => all.get_one::<Acl>(id).map(covered),
            id => text(all, id),
        };
        let origin = match id {
            "servers" => told.origin_of_place(),
            id => told.origin(id),
        };
        in_force.push(InForce {
            option: id.to_owned(),
            value,
            origin,
        });
    }
    in_force
}

fn text(all: &ArgMatches, id: &str) -> Option<String> {
    if let Ok(Some(is_set)) = all.try_get_one::<bool>(id) {
        return Some(is_set.to_string());
    }
    let text = all.get_raw(id)?.next()?;
    Some(text.to_string_lossy().into_owned())
}

/// A credential, of which the scheme is no secret.
fn scheme_of(credential: &str) -> String {
    let scheme = credential.split_once(':').map_or("", |(scheme, _)| scheme);
    format!("{scheme}:***")
}

/// A list without the hashes of digests: those are covered where it is shown to a debugger.
fn covered(acl: &Acl) -> String {
    let shown = format!("{acl:?}");
    let list = shown
        .strip_prefix("Acl(")
        .and_then(|list| list.strip_suffix(')'));
    list.unwrap_or_default().trim_matches('"').to_owned()
}

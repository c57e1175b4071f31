//! `config`: what is in force, and where each value comes from. It asks no server and shows no
//! secret.

use serde_json::{Value, json};

use crate::args::{Config, InForce, Origin};
use crate::failure::Failure;
use crate::report;

pub(crate) fn run(order: &Config, as_json: bool) -> Result<u8, Failure> {
    let settings = &order.settings;
    let files = settings.files.iter();
    let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
    if as_json {
        let in_force = order.in_force.iter().map(object);
        let left_out = settings.left_out.iter().map(|(option, setting, why)| {
            let mut left_out = from(&setting.origin());
            left_out["option"] = json!(option);
            left_out["why"] = json!(why);
            left_out
        });
        report::print_json(&json!({
            "options": in_force.collect::<Vec<_>>(),
            "left_out": left_out.collect::<Vec<_>>(),
            "files": files,
        }))?;
        return Ok(0);
    }
    let row = |it: &InForce| {
        [
            it.option.clone(),
            report::or_dash(it.value.clone()),
            it.origin.to_string(),
        ]
    };
    let mut rows: Vec<[String; 3]> = order.in_force.iter().map(row).collect();
    rows.extend(settings.left_out.iter().map(|(option, setting, why)| {
        let from = format!("{}, is left out: {why}", setting.origin());
        [option.clone(), "-".to_owned(), from]
    }));
    report::print(&report::table(["OPTION", "VALUE", "FROM"], &rows))?;
    if files.is_empty() && !settings.missing.is_empty() {
        let places = settings.missing.iter();
        let places: Vec<String> = places.map(|place| place.display().to_string()).collect();
        report::say(format_args!("no settings in {}", places.join(" or ")));
    }
    Ok(0)
}

fn object(in_force: &InForce) -> Value {
    let mut object = from(&in_force.origin);
    object["option"] = json!(in_force.option);
    object["value"] = json!(in_force.value);
    object
}

fn from(origin: &Origin) -> Value {
    match origin {
        Origin::Option => json!({ "from": "option" }),
        Origin::Variable(name) => json!({ "from": "variable", "variable": name }),
        Origin::File { file, line } => json!({
            "from": "file",
            "file": file.display().to_string(),
            "line": line,
        }),
        Origin::Default => json!({ "from": "default" }),
    }
}

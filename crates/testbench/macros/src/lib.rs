//! `#[case]`: registers a case of an integration suite where it is written.

use proc_macro::{TokenStream, TokenTree};

/// Registers an async function that takes a `World` as a case.
///
/// `#[case]` runs on every server, `#[case(embedded)]` on the embedded one alone, `#[case(real)]`
/// on real ones alone. `alone` keeps other cases from running beside it; `within = 90` is its limit
/// in seconds, instead of 60.
#[proc_macro_attribute]
pub fn case(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let text = arguments.to_string();
    let (mut place, mut is_alone, mut limit) = ("Both", "false", "60".to_owned());
    for argument in text
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        match argument.split_once('=') {
            Some((word, seconds)) if word.trim() == "within" => {
                seconds.trim().clone_into(&mut limit)
            }
            None if argument == "embedded" => place = "Embedded",
            None if argument == "real" => place = "Real",
            None if argument == "alone" => is_alone = "true",
            _ => {
                return error(&format!(
                    "`{argument}`: say embedded, real, alone or within = SECONDS"
                ));
            }
        }
    }
    let mut tokens = item.clone().into_iter();
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let Some(TokenTree::Ident(name)) = tokens.find(is_fn).and_then(|_| tokens.next()) else {
        return error("a case is an async function");
    };
    let registered = format!(
        "const _: () = {{
            use ::testbench::linkme;
            #[linkme::distributed_slice(::testbench::case::CASES)]
            #[linkme(crate = ::testbench::linkme)]
            static CASE: ::testbench::case::Case = ::testbench::case::Case {{
                module: module_path!(),
                name: \"{name}\",
                place: ::testbench::case::Where::{place},
                is_alone: {is_alone},
                limit: ::std::time::Duration::from_secs({limit}),
                run: |world| ::std::boxed::Box::pin({name}(world)),
            }};
        }};"
    );
    let registered: TokenStream = registered.parse().unwrap_or_else(|_| error("a bad limit"));
    item.into_iter().chain(registered).collect()
}

fn error(why: &str) -> TokenStream {
    format!("::core::compile_error!({why:?});")
        .parse()
        .unwrap_or_default()
}

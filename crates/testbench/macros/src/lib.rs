//! `#[case]`: registers a case of an integration suite where it is written.

use proc_macro::{TokenStream, TokenTree};

/// Registers an async function that takes a `World` as a case.
///
/// `#[case]` runs on every server. `#[case(zookeeper, why = "..")]` runs on all that speak
/// ZooKeeper's protocol, and says why it is theirs. `#[case(embedded)]` runs on the embedded one
/// alone, `#[case(embedded, redis)]` on these two, `#[case(redis)]` and `#[case(postgres)]` on
/// one store alone, `#[case(real)]` on real ZooKeeper servers alone. `alone` keeps other cases
/// from running beside it; `within = 90` is its limit in seconds, instead of 60.
#[proc_macro_attribute]
pub fn case(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let (mut places, mut why, mut is_alone, mut limit) =
        (Vec::new(), None, "false", "60".to_owned());
    let mut tokens = arguments.into_iter();
    loop {
        let argument: Vec<String> = tokens
            .by_ref()
            .take_while(|token| !matches!(token, TokenTree::Punct(mark) if *mark == ','))
            .map(|token| token.to_string())
            .collect();
        let words: Vec<&str> = argument.iter().map(String::as_str).collect();
        match &words[..] {
            [] => break,
            ["within", "=", seconds] => (*seconds).clone_into(&mut limit),
            ["why", "=", text] => why = Some((*text).to_owned()),
            ["alone"] => is_alone = "true",
            [place @ ("zookeeper" | "embedded" | "redis" | "postgres" | "real")] => {
                places.push((*place).to_owned());
            }
            _ => {
                return error(&format!(
                    "`{}`: say zookeeper, embedded, redis, postgres, real, alone, why = \"..\" or within = SECONDS",
                    words.join(" ")
                ));
            }
        }
    }
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    let place = match (&places[..], why) {
        ([], None) => "Every".to_owned(),
        (["zookeeper"], Some(why)) => format!("ZooKeeper({why})"),
        (["embedded"], None) => "Embedded".to_owned(),
        (["embedded", "redis"], None) => "EmbeddedAndRedis".to_owned(),
        (["redis"], None) => "Redis".to_owned(),
        (["postgres"], None) => "Postgres".to_owned(),
        (["real"], None) => "Real".to_owned(),
        _ => return error("`zookeeper` has its `why`, and no other place has one"),
    };
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

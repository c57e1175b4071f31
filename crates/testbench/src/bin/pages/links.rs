//! The links of the pages: each leads to a file of the checkout, and to a heading in it.
//!
//! Pages of the web are not asked for.

use std::fs;
use std::path::Path;

use pulldown_cmark::{BrokenLink, Event, Options, Parser, Tag, TagEnd};

/// The links of a page that lead nowhere.
fn broken(checkout: &Path, page: &str, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let mut links = Vec::new();
    // Other words in brackets are no links.
    let mut undefined = |link: BrokenLink<'_>| {
        if link.reference.contains(".md") || link.reference.contains(".svg") {
            broken.push(format!("{page}: [{}] has no definition", link.reference));
        }
        None
    };
    let options = Options::ENABLE_TABLES;
    let parser = Parser::new_with_broken_link_callback(text, options, Some(&mut undefined));
    for event in parser {
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event {
            links.push(dest_url.into_string());
        }
    }
    for link in links.iter().filter(|link| !link.contains("://")) {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let path = checkout.join(page).with_file_name(file);
        let has = |text: &str| anchors(text).iter().any(|anchor| anchor == heading);
        let is_there = match (file, heading) {
            ("", _) => has(text),
            (_, "") => path.exists(),
            _ => fs::read_to_string(&path).is_ok_and(|text| has(&text)),
        };
        if !is_there {
            broken.push(format!("{page}: {link} leads nowhere"));
        }
    }
    broken
}

/// What the headings of a page are called in links.
fn anchors(text: &str) -> Vec<String> {
    let (mut found, mut heading) = (Vec::new(), None::<String>);
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => found.extend(heading.take()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
                    let text = text.to_lowercase();
                    let text = text.chars().filter(kept);
                    heading.extend(text.map(|c| if c == ' ' { '-' } else { c }));
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let checkout = crate::checkout();
    let mut pages = crate::pages(&checkout);
    for name in [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ] {
        pages.push((
            name.into(),
            fs::read_to_string(checkout.join(name)).unwrap(),
        ));
    }

    let broken: Vec<String> = pages
        .iter()
        .flat_map(|(page, text)| broken(&checkout, page, text))
        .collect();

    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# Up and `down`\n\n[a](#up-and-down) [b](#up) [c](none.md) [none.md] [a word]\n";

    let broken = broken(&crate::checkout(), "README.md", text);

    assert_eq!(
        broken,
        [
            "README.md: [none.md] has no definition",
            "README.md: #up leads nowhere",
            "README.md: none.md leads nowhere",
        ]
    );
}

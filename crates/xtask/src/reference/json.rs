//! `json.md`: the fields of each verb's `--json`, read from the types that are printed.
//!
//! A type with `Serialize` in `hold`'s sources is a result where its documentation begins with the verbs that
//! print it, in code marks; else it is part of another. What is also read (`Deserialize`) is a file's format and no result.

use std::collections::BTreeMap;
use std::fmt::Write;

use quote::ToTokens;
use syn::{Attribute, Fields, Item};

use crate::tidy::{Finding, Source};

/// Where the results are: the program, and the one shape that all its experiments print.
const RESULTS: [&str; 2] = ["crates/hold/src/", "crates/bench/src/report.rs"];
/// What begins the documentation of a result.
const VERB: &str = "`hold";

/// What the page begins with.
const INTRODUCTION: &str = "\
    <!-- Made by `cargo xtask reference` from the types in `crates/hold/src`: change them. -->\n\
    # JSON\n\n\
    With `--json` a verb prints one object, or one a line. A field that may be null is marked *or \
    null*; one marked *where there is one* may be absent. New fields may come; those listed here \
    stay what they are.\n";

/// A type that is printed.
struct Type {
    name: String,
    file: std::path::PathBuf,
    line: usize,
    docs: String,
    fields: Vec<Field>,
}

/// One field of it.
struct Field {
    name: String,
    kind: String,
    docs: String,
    flat: bool,
}

/// The page.
pub(crate) fn page(sources: &[Source]) -> String {
    let types = types(sources);
    let mut page = String::from(INTRODUCTION);
    let mut results: Vec<&Type> = types.values().flatten().filter(|t| t.is_result()).collect();
    results.sort_by(|a, b| (&a.docs, &a.name).cmp(&(&b.docs, &b.name)));
    for result in results {
        let _ = write!(page, "\n## {}\n", result.docs.trim_end_matches('.'));
        page.push_str("\n| field | type | meaning |\n|---|---|---|\n");
        rows(&mut page, result, "", &types, 0);
    }
    page
}

/// The rows of a type's fields, those of the types inside it below each.
fn rows(page: &mut String, of: &Type, prefix: &str, types: &Types, depth: usize) {
    for field in &of.fields {
        let inner: Vec<&Type> = named(&field.kind, types, &of.file);
        if !field.flat {
            let (name, docs) = (&field.name, field.docs.replace('|', "\\|"));
            let _ = writeln!(page, "| `{prefix}{name}` | {} | {docs} |", words(&field.kind, types));
        }
        let list = if field.kind.starts_with("Vec") { "[]" } else { "" };
        let prefix = match field.flat {
            true => prefix.to_owned(),
            false => format!("{prefix}{}{list}.", field.name),
        };
        // Types inside types end: a cycle could not be printed either.
        for inner in inner.into_iter().filter(|_| depth < 4) {
            rows(page, inner, &prefix, types, depth + 1);
        }
    }
}

type Types = BTreeMap<String, Vec<Type>>;

/// The types that a field's type names, the one of the same file first: names may be used twice.
fn named<'a>(kind: &str, types: &'a Types, file: &std::path::Path) -> Vec<&'a Type> {
    let words = kind.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut found = Vec::new();
    for word in words {
        if let Some(all) = types.get(word) {
            let near = all.iter().find(|t| t.file == file).or(all.first());
            found.extend(near);
        }
    }
    found
}

/// A Rust type in words of JSON.
fn words(kind: &str, types: &Types) -> String {
    let inner = |name: &str| kind.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>');
    if let Some(inner) = inner("Option") {
        return format!("{} or null", words(inner, types));
    }
    if let Some(inner) = inner("Vec") {
        return format!("list of {}", words(inner, types));
    }
    if let Some((_, value)) = inner("BTreeMap").and_then(|inner| inner.split_once(',')) {
        return format!("object of {}", words(value, types));
    }
    let lent = kind.trim_start_matches('&').trim_start_matches("'static").trim_start_matches("'a");
    if let Some(list) = lent.strip_prefix('[') {
        return format!("list of {}", words(list.trim_end_matches(']'), types));
    }
    match lent {
        "bool" => "boolean".to_owned(),
        "String" | "str" | "PathBuf" | "Path" => "string".to_owned(),
        "f32" | "f64" => "number".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => "integer".to_owned(),
        // Of a shape that is each one's own.
        "Value" => "object".to_owned(),
        // An enumeration of names.
        _ if named_exactly(lent, types).is_none() => "string".to_owned(),
        _ => "object".to_owned(),
    }
}

fn named_exactly<'a>(kind: &str, types: &'a Types) -> Option<&'a Vec<Type>> {
    types.get(kind.split('<').next().unwrap_or(kind))
}

impl Type {
    fn is_result(&self) -> bool {
        self.docs.starts_with(VERB)
    }
}

/// Results, parts and fields that are not documented, and types that nothing names.
pub(crate) fn findings(sources: &[Source]) -> Vec<Finding> {
    let types = types(sources);
    let mut found = Vec::new();
    for of in types.values().flatten() {
        let mut find = |what: String| {
            found.push(Finding { file: of.file.clone(), line: of.line, what });
        };
        if of.docs.is_empty() {
            find(format!("{}: say what it is and which `hold VERB` prints it", of.name));
        }
        for field in of.fields.iter().filter(|field| field.docs.is_empty() && !field.flat) {
            find(format!("{}.{} is printed as JSON: say what it is", of.name, field.name));
        }
        let named = types.values().flatten().flat_map(|other| &other.fields);
        let part = named.into_iter().any(|field| {
            field.kind.split(|c: char| !c.is_alphanumeric()).any(|word| word == of.name)
        });
        if !of.is_result() && !part && !of.docs.is_empty() {
            find(format!(
                "{}: its documentation begins with no `hold VERB`, and no result has it",
                of.name
            ));
        }
    }
    for source in hold(sources) {
        let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, _) in code.lines().enumerate().filter(|(_, line)| line.contains("json!(")) {
            let what = "JSON is printed by a type with documented fields".to_owned();
            found.push(Finding { file: source.path.clone(), line: at + 1, what });
        }
    }
    found
}

fn hold(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| {
        let tests = source.path.components().any(|part| part.as_os_str() == "tests")
            || source.path.ends_with("tests.rs");
        RESULTS.iter().any(|of| source.path.starts_with(of)) && !tests
    })
}

/// Every type with `Serialize` in `hold`, by name.
fn types(sources: &[Source]) -> Types {
    let mut types = Types::new();
    for source in hold(sources) {
        // A file that does not parse does not compile either, and is told there.
        let Ok(file) = syn::parse_file(&source.text) else { continue };
        for item in file.items {
            let (ident, attributes, fields) = match &item {
                Item::Struct(item) => (&item.ident, &item.attrs, fields(&item.fields)),
                // An untagged choice has the fields of all; an enumeration of names is a text.
                Item::Enum(item) if is_untagged(&item.attrs) => {
                    let inner = item.variants.iter().flat_map(|variant| {
                        let mut inner = fields(&variant.fields);
                        inner.iter_mut().for_each(|field| field.flat = true);
                        inner
                    });
                    (&item.ident, &item.attrs, inner.collect())
                }
                _ => continue,
            };
            if !derives(attributes, "Serialize") || derives(attributes, "Deserialize") {
                continue;
            }
            let found = Type {
                name: ident.to_string(),
                file: source.path.clone(),
                line: ident.span().start().line,
                docs: docs(attributes),
                fields,
            };
            if found.fields.iter().any(|field| !field.name.is_empty() || field.flat) {
                types.entry(found.name.clone()).or_default().push(found);
            }
        }
    }
    types
}

fn fields(fields: &Fields) -> Vec<Field> {
    let printed = fields
        .iter()
        .filter(|field| !serde(&field.attrs).contains("skip)") && !is_skipped(&field.attrs));
    let printed = printed.map(|field| {
        let serde = serde(&field.attrs);
        let renamed = serde.split("rename = \"").nth(1).and_then(|rest| rest.split('"').next());
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut docs = docs(&field.attrs);
        if serde.contains("skip_serializing_if") {
            docs = format!("{docs} *Where there is one.*").trim().to_owned();
        }
        Field {
            name: renamed.map_or(name, ToOwned::to_owned),
            kind: field.ty.to_token_stream().to_string().replace(' ', ""),
            docs,
            flat: serde.contains("flatten"),
        }
    });
    printed.collect()
}

fn is_skipped(attributes: &[Attribute]) -> bool {
    let text = serde(attributes);
    text.split([',', '(', ')'])
        .any(|word| word.trim() == "skip" || word.trim() == "skip_serializing")
}

fn is_untagged(attributes: &[Attribute]) -> bool {
    serde(attributes).contains("untagged")
}

/// What stands in `#[serde(...)]`.
fn serde(attributes: &[Attribute]) -> String {
    let serde = attributes.iter().filter(|attribute| attribute.path().is_ident("serde"));
    serde.map(|attribute| attribute.meta.to_token_stream().to_string()).collect()
}

fn derives(attributes: &[Attribute], name: &str) -> bool {
    let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    derives
        .map(|derive| derive.meta.to_token_stream().to_string())
        .any(|text| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == name))
}

/// A documentation's first paragraph, on one line.
fn docs(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let syn::Meta::NameValue(value) = &attribute.meta else { continue };
        let syn::Expr::Lit(literal) = &value.value else { continue };
        let syn::Lit::Str(text) = &literal.lit else { continue };
        let text = text.value();
        if text.trim().is_empty() {
            break;
        }
        lines.push(text.trim().to_owned());
    }
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Source> {
        vec![Source { path: "crates/hold/src/verb/x.rs".into(), text: text.to_owned() }]
    }

    const GOOD: &str = "
        /// `hold x`: the result.
        #[derive(Serialize)]
        struct X<'a> {
            /// How many.
            count: u64,
            /// Each.
            all: Vec<Part>,
            #[serde(skip)]
            inner: bool,
            /// Its kind.
            #[serde(rename = \"type\", skip_serializing_if = \"Option::is_none\")]
            kind: Option<&'a str>,
            /// Why.
            causes: &'a [String],
            #[serde(flatten)]
            more: More,
        }
        /// One of them.
        #[derive(Debug, Serialize)]
        struct Part { /** A name. */ name: &'static str }
        /// What else.
        #[derive(Serialize)]
        #[serde(untagged)]
        enum More { A(Part) }";

    #[test]
    fn fields_are_listed_with_those_inside_them() {
        let page = page(&of(GOOD));
        for row in [
            "## `hold x`: the result\n",
            "| `count` | integer | How many. |",
            "| `all` | list of object | Each. |",
            "| `all[].name` | string | A name. |",
            "| `type` | string or null | Its kind. *Where there is one.* |",
            "| `causes` | list of string | Why. |",
            "| `name` | string | A name. |",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
        assert!(!page.contains("inner"), "{page}");
        assert_eq!(findings(&of(GOOD)), []);
    }

    #[test]
    fn what_is_not_documented_is_found() {
        for (remove, count) in [
            ("/// How many.", 1),
            ("/// `hold x`: the result.", 1),
            ("/** A name. */", 1),
            ("`hold x`: ", 1),
        ] {
            let text = GOOD.replace(remove, "");
            assert_eq!(findings(&of(&text)).len(), count, "{remove}");
        }
        let built = format!("{GOOD}\nfn f() {{ serde_json::json!(1); }}");
        assert_eq!(findings(&of(&built)).len(), 1);
    }
}

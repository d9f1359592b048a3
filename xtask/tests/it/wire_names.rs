//! The names that serde derives from Rust names: stored in tables, sent to browsers, printed by `--output json`.
//!
//! A field or a variant that is renamed in Rust must keep its old name outside the process (`#[serde(rename = "…")]`). Each type that
//! derives `Serialize` or `Deserialize` gives one line with the names it reads and writes; the name of the type itself is not among
//! them, so a type may be renamed. After a change that is meant, write the file again and read the difference:
//!
//! ```text
//! HONEYFLOW_GOLDEN=write cargo test -p xtask --test it
//! ```

use std::path::{Path, PathBuf};

use syn::{Attribute, DeriveInput, Fields, Item, LitStr, Token, parse::ParseBuffer, punctuated::Punctuated};

#[test]
fn serialized_names_are_those_of_the_golden_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let mut lines: Vec<String> = rust_files(root).iter().flat_map(|file| lines_of(file)).collect();
    lines.sort();
    let text = lines.join("\n") + "\n";
    let golden = root.join("xtask/tests/it/wire_names.txt");
    if std::env::var_os("HONEYFLOW_GOLDEN").is_some_and(|value| value == "write") {
        return std::fs::write(golden, text).expect("a file");
    }
    let before = std::fs::read_to_string(golden).expect("a golden file");
    let only = |these: &str, those: &str| {
        let those: Vec<&str> = those.lines().collect();
        these.lines().filter(|line| !those.contains(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    let (gone, come) = (only(&before, &text), only(&text, &before));
    assert!(before == text, "serialized names have changed.\ngone: {gone:#?}\ncome: {come:#?}");
}

/// The product's sources: `src` of everything under `crates` and `lib`, without tests.
fn rust_files(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.join("crates"), root.join("lib")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if entry.is_dir() && name != "tests" && name != "target" {
                folders.push(entry);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                files.push(entry);
            }
        }
    }
    files
}

fn lines_of(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("a file");
    let items = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items;
    let mut lines = Vec::new();
    collect(items, &mut lines);
    lines
}

fn collect(items: Vec<Item>, lines: &mut Vec<String>) {
    for item in items {
        let input: DeriveInput = match item {
            Item::Struct(item) => item.into(),
            Item::Enum(item) => item.into(),
            Item::Mod(module) if !is_test(&module.attrs) => {
                collect(module.content.map(|(_, items)| items).unwrap_or_default(), lines);
                continue;
            }
            _ => continue,
        };
        if derives_serde(&input.attrs) {
            lines.push(line_of(&input));
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

fn derives_serde(attributes: &[Attribute]) -> bool {
    let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    derives
        .filter_map(|derive| derive.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated).ok())
        .flatten()
        .any(|path| path.segments.last().is_some_and(|last| last.ident == "Serialize" || last.ident == "Deserialize"))
}

/// What the attribute `serde` says: `key = "value"`, and words that stand alone.
fn serde_of(attributes: &[Attribute]) -> Vec<(String, Option<String>)> {
    let mut said = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let _ = attribute.parse_nested_meta(|meta| {
            let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            let value = meta.value().and_then(ParseBuffer::parse::<LitStr>).ok().map(|text| text.value());
            said.push((name, value));
            Ok(())
        });
    }
    said
}

fn value_of(said: &[(String, Option<String>)], name: &str) -> Option<String> {
    said.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.clone())
}

fn line_of(input: &DeriveInput) -> String {
    let said = serde_of(&input.attrs);
    let case = value_of(&said, "rename_all");
    let fields_case = value_of(&said, "rename_all_fields");
    let mut words: Vec<String> = ["tag", "content", "untagged", "transparent"]
        .iter()
        .filter(|word| said.iter().any(|(key, _)| key == *word))
        .map(|word| format!("{word}:{}", value_of(&said, word).unwrap_or_default()))
        .collect();
    match &input.data {
        syn::Data::Struct(data) => {
            words.insert(0, "struct".to_owned());
            words.extend(fields_of(&data.fields, case.as_deref()));
        }
        syn::Data::Enum(data) => {
            words.insert(0, "enum".to_owned());
            for variant in &data.variants {
                let said = serde_of(&variant.attrs);
                let name = wire_name(&variant.ident.to_string(), &said, case.as_deref(), true);
                let own = value_of(&said, "rename_all").or_else(|| fields_case.clone());
                words.push(format!("{name}({})", fields_of(&variant.fields, own.as_deref()).join(" ")));
            }
        }
        syn::Data::Union(_) => {}
    }
    words.join(" ")
}

fn fields_of(fields: &Fields, case: Option<&str>) -> Vec<String> {
    let named = fields.iter().map(|field| {
        let said = serde_of(&field.attrs);
        match &field.ident {
            _ if said.iter().any(|(key, _)| key == "flatten") => "(flattened)".to_owned(),
            _ if said.iter().any(|(key, _)| key == "skip") => "(skipped)".to_owned(),
            Some(ident) => wire_name(&ident.to_string(), &said, case, false),
            None => "_".to_owned(),
        }
    });
    named.filter(|name| name != "(skipped)").collect()
}

fn wire_name(rust: &str, said: &[(String, Option<String>)], case: Option<&str>, variant: bool) -> String {
    if let Some(name) = value_of(said, "rename") {
        return name;
    }
    let snake = if variant { snake_of(rust) } else { rust.trim_start_matches("r#").to_owned() };
    match case {
        Some("kebab-case") => snake.replace('_', "-"),
        Some("snake_case") => snake,
        Some("lowercase") => snake.replace('_', ""),
        Some("SCREAMING_SNAKE_CASE") => snake.to_uppercase(),
        _ => rust.to_owned(),
    }
}

fn snake_of(camel: &str) -> String {
    camel.char_indices().fold(String::new(), |mut snake, (at, letter)| {
        if letter.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
        snake
    })
}

//! The schema of an index: four reserved fields, then the configured ones. Their order is part of the schema, so that
//! equal configurations give equal schemas.

use tantivy::{
    schema::{
        DateOptions, FAST, Field as Column, FieldType, INDEXED, IndexRecordOption, NumericOptions, STORED, Schema,
        TextFieldIndexing, TextOptions,
    },
    tokenizer::{
        LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, StopWordFilter, TextAnalyzer, TokenizerManager,
    },
};

use crate::config::{Field, FieldKind, language};

/// Longer words are not indexed: they are encoded data.
const WORD_BYTES_MAX: usize = 255;

pub(crate) const KEY: &str = "_key";
pub(crate) const VERSION: &str = "_version";
pub(crate) const HASH: &str = "_hash";
pub(crate) const SOURCE: &str = "_source";
const RESERVED: [&str; 4] = [KEY, VERSION, HASH, SOURCE];

/// The schema together with its fields.
#[derive(Debug)]
pub(crate) struct Layout {
    pub schema: Schema,
    pub key: Column,
    pub version: Column,
    pub hash: Column,
    pub source: Column,
    /// The configured fields, in the order of the configuration.
    pub fields: Vec<(Field, Column)>,
    /// True if the configuration now has other fields. A value that does not fit a field is then left out of it, since
    /// the document is made for the fields of the next generation.
    pub outdated: bool,
}

impl Layout {
    pub fn new(fields: &[Field]) -> Layout {
        let mut builder = Schema::builder();
        let raw = TextFieldIndexing::default()
            .set_tokenizer("raw")
            .set_fieldnorms(false)
            .set_index_option(IndexRecordOption::Basic);
        let key = builder.add_text_field(KEY, TextOptions::default().set_indexing_options(raw.clone()).set_stored());
        let version = builder.add_u64_field(VERSION, FAST | STORED);
        let hash = builder.add_u64_field(HASH, FAST);
        let source = builder.add_text_field(SOURCE, TextOptions::default().set_stored());
        let fields = fields
            .iter()
            .map(|field| {
                let name = &field.name;
                let column = match &field.kind {
                    FieldKind::Text { language } => {
                        let words = TextFieldIndexing::default()
                            .set_tokenizer(&tokenizer_name(language.as_deref()))
                            .set_index_option(IndexRecordOption::WithFreqsAndPositions);
                        builder.add_text_field(name, TextOptions::default().set_indexing_options(words))
                    }
                    FieldKind::Keyword => {
                        builder.add_text_field(name, TextOptions::default().set_indexing_options(raw.clone()))
                    }
                    FieldKind::Decimal => builder.add_f64_field(name, INDEXED | FAST),
                    FieldKind::Integer => builder.add_i64_field(name, INDEXED | FAST),
                    FieldKind::Boolean => builder.add_bool_field(name, NumericOptions::from(INDEXED | FAST)),
                    FieldKind::Date => builder.add_date_field(name, DateOptions::from(INDEXED | FAST)),
                };
                (field.clone(), column)
            })
            .collect();
        Layout { schema: builder.build(), key, version, hash, source, fields, outdated: false }
    }

    /// The layout of an index that was built with other fields than are configured now. `None` = this program cannot
    /// have built it.
    pub fn outdated(schema: &Schema) -> Option<Layout> {
        let names = schema.fields().map(|(_, entry)| entry);
        let fields = names.filter(|entry| !RESERVED.contains(&entry.name())).map(|entry| {
            let kind = match entry.field_type() {
                FieldType::Str(options) => match options.get_indexing_options()?.tokenizer() {
                    "raw" => FieldKind::Keyword,
                    "text" => FieldKind::Text { language: None },
                    other => FieldKind::Text { language: Some(other.strip_prefix("text-")?.to_owned()) },
                },
                FieldType::F64(_) => FieldKind::Decimal,
                FieldType::I64(_) => FieldKind::Integer,
                FieldType::Bool(_) => FieldKind::Boolean,
                FieldType::Date(_) => FieldKind::Date,
                _ => return None,
            };
            Some(Field::new(entry.name(), kind))
        });
        let layout = Layout { outdated: true, ..Layout::new(&fields.collect::<Option<Vec<_>>>()?) };
        (layout.schema == *schema).then_some(layout)
    }

    /// The fields that a query searches for a word without a field name.
    pub fn default_fields(&self) -> Vec<Column> {
        self.fields
            .iter()
            .filter(|(field, _)| matches!(field.kind, FieldKind::Text { .. } | FieldKind::Keyword))
            .map(|(_, column)| *column)
            .collect()
    }

    pub fn tokenizers(&self) -> TokenizerManager {
        // contains `raw`, and `default`, which the indexing threads need even if no field uses it
        let manager = TokenizerManager::default();
        for (field, _) in &self.fields {
            if let FieldKind::Text { language } = &field.kind {
                manager.register(&tokenizer_name(language.as_deref()), analyzer(language.as_deref()));
            }
        }
        manager
    }
}

fn tokenizer_name(spoken: Option<&str>) -> String {
    match spoken.and_then(language) {
        Some(language) => format!("text-{language:?}").to_ascii_lowercase(),
        None => "text".to_owned(),
    }
}

fn analyzer(spoken: Option<&str>) -> TextAnalyzer {
    let mut analyzer = TextAnalyzer::builder(SimpleTokenizer::default())
        .filter(RemoveLongFilter::limit(WORD_BYTES_MAX))
        .filter(LowerCaser)
        .dynamic();
    if let Some(language) = spoken.and_then(language) {
        if let Some(stop_words) = StopWordFilter::new(language) {
            analyzer = analyzer.filter_dynamic(stop_words);
        }
        analyzer = analyzer.filter_dynamic(Stemmer::new(language));
    }
    analyzer.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_78_the_fields_can_be_read_from_the_schema_of_an_index() {
        let text = |language: Option<&str>| FieldKind::Text { language: language.map(str::to_owned) };
        let fields = [
            ("title", text(Some("english"))),
            ("notes", text(None)),
            ("isbn", FieldKind::Keyword),
            ("price", FieldKind::Decimal),
            ("pages", FieldKind::Integer),
            ("in_print", FieldKind::Boolean),
            ("published", FieldKind::Date),
        ];
        let fields: Vec<Field> = fields.into_iter().map(|(name, kind)| Field::new(name, kind)).collect();
        let built = Layout::new(&fields);
        let read = Layout::outdated(&built.schema).expect("one of ours");
        assert_eq!(read.fields, built.fields);
        assert!(read.outdated && !built.outdated);
        let mut foreign = Schema::builder();
        foreign.add_text_field("title", tantivy::schema::TEXT);
        assert!(Layout::outdated(&foreign.build()).is_none());
    }
}

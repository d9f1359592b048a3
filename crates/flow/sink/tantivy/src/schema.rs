//! The schema: four reserved fields, then those configured. The order is part of it, so that equal configurations
//! give equal schemas.

use tantivy::{
    schema::{
        DateOptions, FAST, Field as Column, INDEXED, IndexRecordOption, NumericOptions, STORED, Schema,
        TextFieldIndexing, TextOptions,
    },
    tokenizer::{
        LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, StopWordFilter, TextAnalyzer, TokenizerManager,
    },
};

use crate::config::{Field, FieldKind, language};

/// Longer words are noise (encoded data); they are not indexed.
const WORD_BYTES_MAX: usize = 255;

pub(crate) const KEY: &str = "_key";
pub(crate) const VERSION: &str = "_version";
pub(crate) const HASH: &str = "_hash";
pub(crate) const SOURCE: &str = "_source";

/// The schema with its fields at hand.
#[derive(Debug)]
pub(crate) struct Layout {
    pub schema: Schema,
    pub key: Column,
    pub version: Column,
    pub hash: Column,
    pub source: Column,
    /// In the order of the configuration.
    pub fields: Vec<(Field, Column)>,
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
        Layout { schema: builder.build(), key, version, hash, source, fields }
    }

    /// Where a word without a field is looked for.
    pub fn default_fields(&self) -> Vec<Column> {
        self.fields
            .iter()
            .filter(|(field, _)| matches!(field.kind, FieldKind::Text { .. } | FieldKind::Keyword))
            .map(|(_, column)| *column)
            .collect()
    }

    pub fn tokenizers(&self) -> TokenizerManager {
        // has `raw`, and `default`, which the indexing threads ask for even where no field does
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

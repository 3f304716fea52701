//! The chat template inside a model file: messages to text.
//!
//! Not tokens (that is `encode`). Rendered as the transformers library does it: `trim_blocks`, `lstrip_blocks`,
//! Python's string methods, `raise_exception`, `strftime_now`, `tojson` without HTML escapes.

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use sha2::{Digest, Sha256};

use super::ModelError;
use super::chat::{Message, Role};

/// Most steps of the template engine for one rendering; ends a template that loops without end.
const FUEL: u64 = 2_000_000;

/// A compiled chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    source: String,
    sha256: String,
    file: PathBuf,
    bos: Option<String>,
    eos: Option<String>,
}

impl Template {
    /// Compiles `source`; `file` is for messages only.
    ///
    /// # Errors
    /// The template has a syntax error.
    pub fn new(source: &str, file: &Path) -> Result<Self, ModelError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(|error| ModelError::Template {
            file: file.into(),
            reason: error.to_string(),
        })?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        // The date in a prompt would make a run depend on the day, so every day is this one.
        environment.add_function("strftime_now", |_format: String| "2025-01-01");
        environment.add_filter("tojson", |value: Value| -> Result<Value, Error> {
            serde_json::to_string(&value)
                .map(Value::from_safe_string)
                .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
        });
        let template = Self {
            environment,
            source: source.to_owned(),
            sha256: hex(&Sha256::digest(source.as_bytes())),
            file: file.into(),
            bos: None,
            eos: None,
        };
        match template.environment.template_from_str(&template.source) {
            Ok(_) => Ok(template),
            Err(error) => Err(template.failed(&error)),
        }
    }

    /// Gives the texts that `bos_token` and `eos_token` stand for in the template; none leaves a name undefined, as the
    /// transformers library does, so that it renders as nothing.
    #[must_use]
    pub fn with_tokens(self, bos: Option<String>, eos: Option<String>) -> Self {
        Self { bos, eos, ..self }
    }

    /// The texts of the tokens that begin and end.
    pub fn tokens(&self) -> (Option<&str>, Option<&str>) {
        (self.bos.as_deref(), self.eos.as_deref())
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// SHA-256 of the template's text, lower-case hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Renders messages, followed by the opening of the model's turn.
    ///
    /// # Errors
    /// The template raises an exception, uses an unknown function, or runs without end.
    pub fn render(&self, messages: &[Message]) -> Result<String, ModelError> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| {
                let role = match message.role {
                    Role::System => "system",
                    Role::User => "user",
                    Role::Assistant => "assistant",
                };
                context! { role, content => message.content.as_str() }
            })
            .collect();
        let token = |text: &Option<String>| text.as_deref().map_or(Value::UNDEFINED, Value::from);
        let context = context! {
            messages,
            add_generation_prompt => true,
            tools => (),
            documents => (),
            bos_token => token(&self.bos),
            eos_token => token(&self.eos),
        };
        let template = self.environment.template_from_str(&self.source);
        template
            .and_then(|template| template.render(context))
            .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &Error) -> ModelError {
        ModelError::Template {
            file: self.file.clone(),
            reason: format!("{error:#}"),
        }
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

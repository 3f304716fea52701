//! The grammar of TextWorld 1.7.0's rule text (`KB.logic`), by recursive descent of fixed depth.
//!
//! Not the meaning of what is read. Constraints, reverse rules and Inform 7 code are read for their form only, since
//! the generator and the compiler of story files alone use them.

use super::error::GameError;
use super::lexer::{Token, tokens};
use super::rules::{
    Alias, Atom, MAX_ALIASES, MAX_ARGUMENTS, MAX_ATOMS, MAX_RULES, Placeholder, Rule, RuleBase,
};

impl RuleBase {
    /// Parses the rule text of the file called `file`.
    ///
    /// # Errors
    /// [`GameError::Rules`] with the line inside the rule text.
    pub fn parse(text: &str, file: &str) -> Result<Self, GameError> {
        let tokens = tokens(text, file)?;
        let mut parser = Parser {
            tokens: &tokens,
            next: 0,
            file,
            base: Self::default(),
        };
        while parser.next < tokens.len() {
            parser.type_block()?;
        }
        Ok(parser.base)
    }
}

struct Parser<'a, 't> {
    tokens: &'a [(Token<'t>, usize)],
    next: usize,
    file: &'a str,
    base: RuleBase,
}

impl<'t> Parser<'_, 't> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.next).map(|(token, _)| *token)
    }

    fn fail<T>(&self, expected: &str) -> Result<T, GameError> {
        let found = self
            .peek()
            .map_or_else(|| "the end of the text".into(), |t| t.to_string());
        let line = self
            .tokens
            .get(self.next)
            .or(self.tokens.last())
            .map_or(1, |(_, line)| *line);
        Err(GameError::Rules {
            file: self.file.into(),
            line,
            expected: expected.into(),
            found,
        })
    }

    fn word(&mut self, expected: &str) -> Result<&'t str, GameError> {
        let Some(Token::Word(word)) = self.peek() else {
            return self.fail(expected);
        };
        self.next += 1;
        Ok(word)
    }

    fn quoted(&mut self) -> Result<&'t str, GameError> {
        let Some(Token::Text(text)) = self.peek() else {
            return self.fail("a quoted text");
        };
        self.next += 1;
        Ok(text)
    }

    fn take(&mut self, mark: &str) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.next += usize::from(found);
        found
    }

    fn mark(&mut self, mark: &str) -> Result<(), GameError> {
        if self.take(mark) {
            Ok(())
        } else {
            self.fail(&format!("`{mark}`"))
        }
    }

    fn type_block(&mut self) -> Result<(), GameError> {
        if self.peek() != Some(Token::Word("type")) {
            return self.fail("`type`");
        }
        self.next += 1;
        let name = self.word("a type name")?;
        let mut parents = Vec::new();
        if self.take(":") {
            parents.push(self.word("a parent type")?.to_owned());
            while self.take(",") {
                parents.push(self.word("a parent type")?.to_owned());
            }
        }
        if self.base.types.len() >= MAX_RULES {
            return self.fail(&format!("at most {MAX_RULES} types"));
        }
        self.base.types.entry(name.into()).or_default().extend(parents);
        self.mark("{")?;
        while !self.take("}") {
            self.part()?;
        }
        Ok(())
    }

    fn part(&mut self) -> Result<(), GameError> {
        const PARTS: &str = "`predicates`, `rules`, `reverse_rules`, `constraints`, `inform7` or `}`";
        let at = self.next;
        let part = self.word(PARTS)?;
        let entry: fn(&mut Self) -> Result<(), GameError> = match part {
            "predicates" => Self::predicate,
            "rules" => Self::rule,
            "constraints" => Self::constraint,
            "reverse_rules" => Self::reverse_rule,
            "inform7" => Self::inform,
            _ => {
                self.next = at;
                return self.fail(PARTS);
            }
        };
        self.mark("{")?;
        while !self.take("}") {
            entry(self)?;
        }
        Ok(())
    }

    fn predicate(&mut self) -> Result<(), GameError> {
        let left = self.atom(&mut Vec::new())?;
        let arities = self.base.predicates.entry(left.name.clone()).or_default();
        if !arities.contains(&left.args.len()) {
            arities.push(left.args.len());
        }
        if self.take("=") {
            if self.base.aliases.len() >= MAX_ALIASES {
                return self.fail(&format!("at most {MAX_ALIASES} aliases"));
            }
            let mut known = left.args.clone();
            let right = self
                .conjunction(&mut known)?
                .into_iter()
                .map(|(atom, _)| atom)
                .collect();
            self.base.aliases.push(Alias { left, right });
        }
        self.mark(";")
    }

    fn rule(&mut self) -> Result<(), GameError> {
        if self.base.rules.len() >= MAX_RULES {
            return self.fail(&format!("at most {MAX_RULES} rules"));
        }
        let (name, rule) = self.named_rule()?;
        self.base.rules.insert(name, rule);
        Ok(())
    }

    fn constraint(&mut self) -> Result<(), GameError> {
        self.named_rule().map(|_| ())
    }

    fn named_rule(&mut self) -> Result<(String, Rule), GameError> {
        let name = self.word("a rule name")?.to_owned();
        self.mark("::")?;
        let mut known = Vec::new();
        let before = self.conjunction(&mut known)?;
        self.mark("->")?;
        let kept = before
            .iter()
            .filter(|(_, keep)| *keep)
            .map(|(atom, _)| atom.clone());
        let mut post: Vec<Atom> = kept.collect();
        if self.peek() != Some(Token::Mark(";")) {
            post.extend(self.conjunction(&mut known)?.into_iter().map(|(atom, _)| atom));
        }
        self.mark(";")?;
        let pre = before.into_iter().map(|(atom, _)| atom).collect();
        Ok((name, Rule { pre, post }))
    }

    fn reverse_rule(&mut self) -> Result<(), GameError> {
        self.word("a rule name")?;
        self.mark("::")?;
        self.word("a rule name")?;
        self.mark(";")
    }

    /// Atoms joined by `&`, each with whether it was marked `$`.
    fn conjunction(&mut self, known: &mut Vec<Placeholder>) -> Result<Vec<(Atom, bool)>, GameError> {
        let mut atoms = Vec::new();
        loop {
            let keep = self.take("$");
            atoms.push((self.atom(known)?, keep));
            if !self.take("&") {
                return Ok(atoms);
            }
            if atoms.len() >= MAX_ATOMS {
                return self.fail(&format!("at most {MAX_ATOMS} predicates"));
            }
        }
    }

    /// One predicate. `known` holds the types of the rule's placeholders: the same name always has the same type.
    fn atom(&mut self, known: &mut Vec<Placeholder>) -> Result<Atom, GameError> {
        let word = self.word("a predicate")?;
        let name = word
            .strip_prefix('!')
            .map_or_else(|| word.to_owned(), |rest| format!("not_{rest}"));
        self.mark("(")?;
        let mut args = Vec::new();
        while !self.take(")") {
            if !args.is_empty() {
                self.mark(",")?;
            }
            if args.len() == MAX_ARGUMENTS {
                return self.fail(&format!("at most {MAX_ARGUMENTS} arguments"));
            }
            let name = self.word("a placeholder")?;
            let kind = match known.iter().find(|p| p.name == name) {
                Some(earlier) => earlier.kind.clone(),
                None => name.trim_end_matches('\'').to_owned(),
            };
            let kind = if self.take(":") {
                self.word("a type name")?.to_owned()
            } else {
                kind
            };
            let placeholder = Placeholder {
                name: name.to_owned(),
                kind,
            };
            if !known.contains(&placeholder) {
                if known.iter().any(|p| p.name == placeholder.name) {
                    self.next -= 1;
                    return self.fail(&format!("the type that `{name}` had before in this rule"));
                }
                if known.len() >= MAX_ATOMS {
                    return self.fail(&format!("at most {MAX_ATOMS} placeholders"));
                }
                known.push(placeholder.clone());
            }
            args.push(placeholder);
        }
        Ok(Atom { name, args })
    }

    fn inform(&mut self) -> Result<(), GameError> {
        const PARTS: &str = "`type`, `predicates`, `commands`, `code` or `}`";
        let at = self.next;
        let part = self.word(PARTS)?;
        if part == "code" {
            self.mark("::")?;
            self.quoted()?;
            self.base.has_code = true;
            return self.mark(";");
        }
        if !["type", "predicates", "commands"].contains(&part) {
            self.next = at;
            return self.fail(PARTS);
        }
        self.mark("{")?;
        while !self.take("}") {
            match part {
                "type" => drop(self.word("a setting")?),
                "predicates" => drop(self.atom(&mut Vec::new())?),
                _ => {
                    let rule = self.word("a rule name")?.to_owned();
                    self.mark("::")?;
                    let template = self.quoted()?.to_owned();
                    self.base.commands.insert(rule, template);
                }
            }
            self.mark("::")?;
            self.quoted()?;
            self.mark(";")?;
        }
        Ok(())
    }
}

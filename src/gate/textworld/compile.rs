//! Rules made of ids: placeholders become slots, command templates become pieces.
//!
//! Not matching (`logic.rs`). A rule without a command template is left out, since no command can stand for it.

use super::declare::Names;
use super::error::GameError;
use super::logic::{CompiledRule, MAX_SLOTS, Pattern, Piece};
use super::rules::{Atom, Placeholder, RuleBase};

/// Compiles the rules of `base`, in the order of their names.
///
/// # Errors
/// [`GameError::Invalid`] at a rule with an undeclared name or too many placeholders.
pub(super) fn compile(base: &RuleBase, names: &Names<'_>) -> Result<Vec<CompiledRule>, GameError> {
    let mut rules = Vec::new();
    for (name, rule) in &base.rules {
        let Some(template) = base.commands.get(name) else {
            continue;
        };
        let mut slots = Slots {
            rule: name,
            names,
            placeholders: Vec::new(),
        };
        let pre = slots.patterns(&rule.pre)?;
        let post = slots.patterns(&rule.post)?;
        let command = slots.pieces(template)?;
        let mut kinds = Vec::new();
        let mut constants = Vec::new();
        for (slot, placeholder) in slots.placeholders.iter().enumerate() {
            kinds.push(names.kind(|| format!("KB.logic, rule {name}"), &placeholder.kind)?);
            let entity = names
                .entity_ids
                .get(&placeholder.name)
                .filter(|_| placeholder.name == placeholder.kind);
            if let Some(&entity) = entity.filter(|e| names.kinds.constant[usize::from(**e)]) {
                constants.push((slot as u8, entity));
            }
        }
        rules.push(CompiledRule {
            name: name.clone(),
            pre,
            post,
            slots: kinds,
            constants,
            command,
        });
    }
    Ok(rules)
}

struct Slots<'a> {
    rule: &'a str,
    names: &'a Names<'a>,
    placeholders: Vec<Placeholder>,
}

impl Slots<'_> {
    fn place(&self) -> String {
        format!("KB.logic, rule {}", self.rule)
    }

    fn patterns(&mut self, atoms: &[Atom]) -> Result<Vec<Pattern>, GameError> {
        let mut out = Vec::new();
        for atom in atoms {
            let Some(&predicate) = self
                .names
                .predicate_ids
                .get(&(atom.name.clone(), atom.args.len()))
            else {
                let found = format!("{}/{}", atom.name, atom.args.len());
                return self.names.fail(self.place(), "a declared predicate", &found);
            };
            let slots = atom
                .args
                .iter()
                .map(|arg| self.slot(arg))
                .collect::<Result<_, _>>()?;
            out.push(Pattern { predicate, slots });
        }
        Ok(out)
    }

    fn slot(&mut self, placeholder: &Placeholder) -> Result<u8, GameError> {
        let at = self
            .placeholders
            .iter()
            .position(|p| p.name == placeholder.name)
            .unwrap_or(self.placeholders.len());
        if at == self.placeholders.len() {
            if at == MAX_SLOTS {
                return self
                    .names
                    .fail(self.place(), "at most 32 placeholders", &placeholder.name);
            }
            self.placeholders.push(placeholder.clone());
        }
        Ok(at as u8)
    }

    fn pieces(&self, template: &str) -> Result<Vec<Piece>, GameError> {
        let mut out: Vec<Piece> = Vec::new();
        let mut rest = template;
        while let Some((text, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                break;
            };
            let Some(slot) = self.placeholders.iter().position(|p| p.name == name) else {
                return self
                    .names
                    .fail(self.place(), "a command that names the rule's placeholders", name);
            };
            if !text.is_empty() {
                out.push(Piece::Text(text.into()));
            }
            out.push(Piece::Slot(slot as u8));
            rest = after;
        }
        if !rest.is_empty() {
            out.push(Piece::Text(rest.into()));
        }
        Ok(out)
    }
}

/// The placeholders of a command, in its order.
pub(super) fn command_slots(rule: &CompiledRule) -> impl Iterator<Item = u8> + '_ {
    rule.command.iter().filter_map(|piece| match piece {
        Piece::Slot(slot) => Some(*slot),
        Piece::Text(_) => None,
    })
}

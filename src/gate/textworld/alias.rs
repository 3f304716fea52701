//! Aliases of the rule text written out: `south_of(r, r')` becomes `north_of(r', r)`.
//!
//! Not applied to facts: a fact that uses an alias's name stays as it is, as in TextWorld 1.7.0.

use super::error::GameError;
use super::rules::{Alias, Atom, MAX_ATOMS, RuleBase};

/// Deepest chain of aliases; a longer one is a cycle in all but name.
const MAX_DEPTH: usize = 16;

/// Writes out every alias in every rule.
///
/// # Errors
/// [`GameError::Invalid`] at a rule whose aliases never end or grow too long.
pub fn expand_all(base: &mut RuleBase, file: &str) -> Result<(), GameError> {
    let aliases = std::mem::take(&mut base.aliases);
    for (name, rule) in &mut base.rules {
        for side in [&mut rule.pre, &mut rule.post] {
            let mut out = Vec::new();
            if side
                .iter()
                .any(|atom| !expand(&aliases, atom, MAX_DEPTH, &mut out))
            {
                return Err(GameError::Invalid {
                    file: file.into(),
                    place: format!("KB.logic, rule {name}"),
                    expected: format!("aliases that end within {MAX_DEPTH} steps and {MAX_ATOMS} predicates"),
                    found: "a longer chain".into(),
                });
            }
            *side = out;
        }
    }
    base.aliases = aliases;
    Ok(())
}

/// Appends `atom` to `out`, written out; false when it does not end.
fn expand(aliases: &[Alias], atom: &Atom, depth: usize, out: &mut Vec<Atom>) -> bool {
    let same = |a: &Alias| {
        a.left.name == atom.name
            && a.left.args.len() == atom.args.len()
            && a.left.args.iter().zip(&atom.args).all(|(x, y)| x.kind == y.kind)
    };
    let Some(alias) = aliases.iter().find(|a| same(a)) else {
        out.push(atom.clone());
        return out.len() <= 2 * MAX_ATOMS;
    };
    depth > 0
        && alias.right.iter().all(|right| {
            let written = right.args.iter().map(|arg| {
                let at = alias.left.args.iter().position(|left| left == arg);
                at.and_then(|i| atom.args.get(i)).unwrap_or(arg).clone()
            });
            let next = Atom {
                name: right.name.clone(),
                args: written.collect(),
            };
            expand(aliases, &next, depth - 1, out)
        })
}

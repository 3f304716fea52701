//! Descriptions with Inform 7 substitutions: `[if c_0 is open]…[otherwise]…[end if]`, `[a list of things in the c_0]`.
//!
//! Not all of Inform 7: the forms that TextWorld 1.7.0's generator writes. Anything else stays in the text as it
//! is, and the game counts it as not modelled.

use super::state::Id;

/// A condition on one entity; without an entity it is about the thing described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// `open`.
    Open(Option<Id>),
    /// `closed`: in the generated story files this is "not open", so it is true of locked things as well.
    Closed(Option<Id>),
    /// `locked`.
    Locked(Option<Id>),
    /// Something lies in or on it.
    Holds(Id),
    /// Nothing does.
    Empty(Id),
}

/// A piece of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Fixed text.
    Text(String),
    /// `[if …]`: all of these.
    If(Vec<Test>),
    /// `[else if …]`.
    ElseIf(Vec<Test>),
    /// `[otherwise]` or `[else]`.
    Otherwise,
    /// `[end if]`.
    EndIf,
    /// `[a list of things in the X]`.
    List(Id),
    /// `[noun]`: the thing described.
    Noun,
    /// A form that is not modelled.
    Unknown(String),
}

/// What a description can ask of the world.
pub trait World {
    /// Whether the condition holds, for the description of `me`.
    fn test(&self, test: &Test, me: Id) -> bool;
    /// `a key and a spork`.
    fn list(&self, holder: Id) -> String;
    /// The printed name.
    fn name(&self, entity: Id) -> String;
}

/// Cuts `text` into nodes; `id` finds an entity by its id.
pub fn parse(text: &str, id: &impl Fn(&str) -> Option<Id>) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let Some(length) = rest[open..].find(']') else {
            break;
        };
        if open > 0 {
            nodes.push(Node::Text(rest[..open].into()));
        }
        nodes.push(bracket(&rest[open + 1..open + length], id));
        rest = &rest[open + length + 1..];
    }
    if !rest.is_empty() {
        nodes.push(Node::Text(rest.into()));
    }
    nodes
}

fn bracket(inside: &str, id: &impl Fn(&str) -> Option<Id>) -> Node {
    let conditions =
        |text: &str| -> Option<Vec<Test>> { text.split(" and ").map(|c| condition(c.trim(), id)).collect() };
    let list = |text: &str| {
        ["in the ", "on the "]
            .iter()
            .find_map(|p| id(text.strip_prefix(p)?))
    };
    let known = match inside {
        "otherwise" | "else" => Some(Node::Otherwise),
        "end if" => Some(Node::EndIf),
        "noun" => Some(Node::Noun),
        _ => None,
    };
    known
        .or_else(|| inside.strip_prefix("if ").and_then(conditions).map(Node::If))
        .or_else(|| {
            inside
                .strip_prefix("else if ")
                .and_then(conditions)
                .map(Node::ElseIf)
        })
        .or_else(|| {
            inside
                .strip_prefix("a list of things ")
                .and_then(list)
                .map(Node::List)
        })
        .unwrap_or_else(|| Node::Unknown(format!("[{inside}]")))
}

fn condition(text: &str, id: &impl Fn(&str) -> Option<Id>) -> Option<Test> {
    let state = |word: &str, entity| match word {
        "open" => Some(Test::Open(entity)),
        "closed" => Some(Test::Closed(entity)),
        "locked" => Some(Test::Locked(entity)),
        _ => None,
    };
    if let Some(test) = state(text, None) {
        return Some(test);
    }
    for (prefixes, test) in [
        (
            ["there is something in the ", "there is something on the "],
            Test::Holds as fn(Id) -> Test,
        ),
        (
            ["there is nothing in the ", "there is nothing on the "],
            Test::Empty,
        ),
    ] {
        if let Some(entity) = prefixes.iter().find_map(|p| text.strip_prefix(p)) {
            return id(entity).map(test);
        }
    }
    let text = text.strip_prefix("the ").unwrap_or(text);
    if let Some(entity) = text.strip_suffix(" contains nothing") {
        return id(entity).map(Test::Empty);
    }
    let (entity, word) = text.split_once(" is ")?;
    state(word, Some(id(entity)?))
}

/// The text of `nodes` in `world`, for the description of `me`.
pub fn render(nodes: &[Node], world: &impl World, me: Id) -> String {
    let all = |tests: &[Test]| tests.iter().all(|test| world.test(test, me));
    let mut out = String::new();
    // One entry for each open `[if]`: whether a branch was taken, and whether this branch is.
    let mut branches: Vec<(bool, bool)> = Vec::new();
    // Counted, so that hostile nesting stays linear.
    let mut silent = 0_usize;
    for node in nodes {
        match node {
            Node::If(tests) => {
                let taken = silent == 0 && all(tests);
                branches.push((taken, taken));
                silent += usize::from(!taken);
            }
            Node::ElseIf(_) | Node::Otherwise => {
                if let Some((taken, active)) = branches.last_mut() {
                    silent -= usize::from(!*active);
                    let holds = match node {
                        Node::ElseIf(tests) => all(tests),
                        _ => true,
                    };
                    *active = silent == 0 && !*taken && holds;
                    *taken |= *active;
                    silent += usize::from(!*active);
                }
            }
            Node::EndIf => {
                if let Some((_, active)) = branches.pop() {
                    silent -= usize::from(!active);
                }
            }
            _ if silent > 0 => {}
            Node::Text(text) | Node::Unknown(text) => out.push_str(text),
            Node::List(holder) => out.push_str(&world.list(*holder)),
            Node::Noun => out.push_str(&world.name(me)),
        }
    }
    paragraph(&out)
}

/// Inform's printing: blanks after a newline vanish, and an apostrophe that is not inside a word is a quotation mark.
pub fn paragraph(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut before: Option<char> = None;
    while let Some(c) = chars.next() {
        let word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let printed = if c == '\'' && !(word(before) && word(chars.peek().copied())) {
            '"'
        } else {
            c
        };
        out.push(printed);
        if c == '\n' {
            while chars.next_if_eq(&' ').is_some() {}
        }
        before = Some(c);
    }
    out
}
